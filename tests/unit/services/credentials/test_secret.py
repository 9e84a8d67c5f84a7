"""A secret goes through scopes as a value and comes out as text only when it is revealed."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import jinja2.sandbox
import msgspec
import orjson
import pytest

from noetl.model.canonical import canonical_json
from noetl.services.credentials.secret import Secret, guarded, revealed, secrets_in

CANARY = "canary-6f1b"

WRITERS: dict[str, Callable[[Any], object]] = {
    "str": str,
    "format": lambda value: f"{value}",
    "percent": lambda value: "%s" % value,  # noqa: UP031
    "join": lambda value: "".join([value]),
    "json": json.dumps,
    "json with str": lambda value: json.dumps(value, default=str),
    "orjson": orjson.dumps,
    "msgspec": msgspec.json.encode,
    "canonical": lambda value: canonical_json({"a": value}),
    "pickle": pickle.dumps,
    "jinja": lambda value: jinja2.Template("{{ x }}").render(x=value),
    "jinja join": lambda value: jinja2.Template("{{ 'a' ~ x }}").render(x=value),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_secret_refuses_to_become_text(writer: Callable[[Any], object]) -> None:
    with pytest.raises(Exception) as refused:
        writer(Secret(CANARY))
    assert CANARY not in "".join(traceback.format_exception(refused.value))


def test_its_repr_is_masked_also_within_others() -> None:
    assert repr({"a": [Secret(CANARY)]}) == "{'a': [Secret(***)]}"


def test_a_template_cannot_reveal_it() -> None:
    environment = jinja2.sandbox.SandboxedEnvironment()
    with pytest.raises(jinja2.sandbox.SecurityError):
        environment.from_string("{{ x.reveal() }}").render(x=Secret(CANARY))


def test_it_says_whether_it_is_empty_and_equal_but_is_no_text() -> None:
    assert Secret(CANARY)
    assert not Secret("")
    assert Secret(CANARY) == Secret(CANARY) != Secret("other")
    assert Secret(CANARY) != CANARY
    assert len({Secret(CANARY), Secret(CANARY)}) == 1


def test_copies_are_the_secret_itself() -> None:
    secret = Secret(CANARY)
    assert copy.deepcopy({"a": secret})["a"] is copy.copy(secret) is secret


def test_guarding_and_revealing_are_each_others_way_back() -> None:
    value = {"host": "db.example", "port": 5432, "password": CANARY, "more": {"keys": ["k1", "k2"], "on": True}}
    inside = guarded(value, frozenset({"host"}))
    assert inside["host"] == "db.example"
    assert inside["port"] == 5432
    assert revealed(inside) == value
    assert list(secrets_in(inside)) == [CANARY, "k1", "k2"]


def test_an_address_with_a_password_is_a_secret_under_any_name() -> None:
    inside = guarded({"url": "nats://ann:canary@host:4222", "other": "nats://host:4222"}, frozenset({"url", "other"}))
    assert isinstance(inside["url"], Secret)
    assert inside["other"] == "nats://host:4222"
