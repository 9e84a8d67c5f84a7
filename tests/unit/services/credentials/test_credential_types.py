"""What a credential must hold, and what is said when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InputError
from noetl.services.credentials.credential_types import TYPES, check, shown_fields
from noetl.services.credentials.input_forms import given_credential, parse_object, parse_pairs

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("postgres", {"db_host": "h", "db_port": 5432, "db_user": "u", "db_password": "p", "db_name": "n"}),
    ("postgres", {"dsn": "postgresql://u:p@h/n"}),
    ("oauth2", {"client_id": "i", "client_secret": "s"}),
    ("oauth2", {"access_token": "t"}),
    ("bearer", {"token": "t"}),
    ("basic", {"username": "u", "password": "p"}),
    ("api_key", {"key": "k", "header": "X-Key"}),
    ("service_account", {"client_email": "e", "private_key": "k"}),
    ("snowflake", {"sf_account": "a", "sf_user": "u", "sf_private_key": "k"}),
    ("nats", {"nats_url": "nats://h:4222", "nats_user": "u", "nats_password": "p"}),
    ("mcp", {"endpoint": "https://h/mcp", "token": "t"}),
    ("mcp", {"command": "notes-server"}),
    ("kafka", {"bootstrap_servers": "h:9092"}),
    ("pubsub", {"project_id": "p"}),
    ("gcs_hmac", {"key_id": "k", "secret_key": "s", "type": "gcs", "service": "gcs"}),
    ("s3", {"access_key_id": "k", "secret_access_key": "s"}),
]


def test_every_type_is_tried_here() -> None:
    assert {name for name, _ in GOOD} == set(TYPES)


@pytest.mark.parametrize(("type_name", "data"), GOOD)
def test_complete_data_are_taken_and_empty_ones_are_not(type_name: str, data: dict[str, Any]) -> None:
    check("x", type_name, data)
    with pytest.raises(InputError, match=f"'x' of type {type_name}"):
        check("x", type_name, {})


def test_everything_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(InputError, match="db_user is empty; db_name is missing"):
        check("x", "postgres", {"db_host": "h", "db_user": ""})


def test_an_unknown_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'postgres'") as refused:
        check("x", "postgre", {})
    assert refused.value.hint is not None
    assert "service_account" in refused.value.hint


def test_passwords_tokens_and_keys_are_never_shown() -> None:
    secret = ("password", "secret", "token", "private_key", "passphrase", "credentials", "dsn")
    for name in TYPES:
        assert not [
            field for field in shown_fields(name) if field in secret or field.endswith(("_password", "_secret"))
        ]
    assert shown_fields("no such type") == frozenset()


def test_a_users_file_is_taken_and_the_command_line_comes_first() -> None:
    written = parse_object('{"name": "a", "type": "bearer", "data": {"token": "t"}, "tags": "one"}', "a.json")
    given = given_credential(written, name="b", description=None, tags=[])
    assert (given.name, given.type, given.data, given.tags) == ("b", "bearer", {"token": "t"}, ("one",))
    assert "'t'" not in repr(given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"token": canary', "line 1, column 11"),
        ('["canary"]', "not a JSON object"),
    ],
)
def test_a_wrong_text_is_refused_without_being_shown(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        parse_object(text, "a.json")
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"name": "a", "type": "bearer"}, "no data"),
        ({"data": {"token": "t"}}, "no name and no type"),
        ({"name": "a", "type": "bearer", "data": {"token": "t"}, "password": "canary"}, "has no password"),
        ({"name": "a", "type": "bearer", "data": ["canary"]}, "data is of the wrong kind"),
    ],
)
def test_an_object_that_is_no_credential_is_refused(written: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        given_credential(written)
    assert "canary" not in str(refused.value)


def test_fields_are_given_as_pairs() -> None:
    assert parse_pairs(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(InputError) as refused:
        parse_pairs(["canary"])
    assert "canary" not in str(refused.value)
