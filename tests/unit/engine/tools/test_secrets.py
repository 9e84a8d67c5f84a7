"""The secrets tool: what is recorded of a secret, what later tasks see of it, and what a playbook may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from noetl.engine.tools.port import Call
from noetl.engine.tools.secrets import SecretsTool, opened
from noetl.errors import Denied, NotFound
from noetl.language.playbook.model import KeychainEntry
from noetl.language.playbook.parse import parse
from noetl.language.playbook.secret_tasks import entry_of, may_ask_for, secret_steps
from noetl.testing.engines.playbook_runs import playbook

KEPT = {
    "gcp:db": {"user": "ada", "password": "pw-of-ada"},
    "environment:SECRET_TOKEN": {"value": "tok-123"},
}
CallOf = Callable[..., Call]
tool = SecretsTool()


async def read(entry: KeychainEntry) -> Mapping[str, Any]:
    if entry.auth == "nobody":
        raise Denied("not with this identity")
    if entry.name not in KEPT:
        raise NotFound(f"there is no {entry.name}")
    return KEPT[entry.name]


def asking(call_of: CallOf, **given: Any) -> Call:
    call = call_of("secrets", auth=given.pop("auth", None), options=given)
    return msgspec.structs.replace(call, secret=read)


async def test_a_reference_is_recorded_and_opens_again(call_of: CallOf) -> None:
    """INV-175."""
    token = await tool.run(asking(call_of, secret="SECRET_TOKEN"))
    assert "tok-123" not in str(token.data)
    assert token.data["value"] == {"secret_ref": "environment:SECRET_TOKEN"}
    assert (token.hidden.value["value"], token.hidden.value["provider"]) == ("tok-123", "environment")
    both = await tool.run(asking(call_of, provider="google", secret="db", project="p", version="3"))
    assert "ada" not in str(both.data)
    assert both.data["fields"]["user"] == {"secret_ref": "gcp:db#user"}
    assert both.data["version"] == "3"
    assert both.hidden.value["fields"] == both.hidden.value["value"] == KEPT["gcp:db"]
    one = await tool.run(asking(call_of, provider="gcp", secret="db", key="password"))
    assert (one.data["value"], one.hidden.value["value"]) == ({"secret_ref": "gcp:db#password"}, "pw-of-ada")
    for outcome in (token, both, one):
        assert await opened(outcome.data, read) == outcome.hidden.value
        assert "***" in repr(outcome.hidden)
    assert await opened({"value": "of another kind"}, read) == {"value": "of another kind"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"secret": "SECRET_OTHER"}, "not_found"),
        ({"provider": "gcp", "secret": "db", "key": "nothing"}, "not_found"),
        ({"secret": "SECRET_TOKEN", "auth": "nobody"}, "auth"),
        ({"secret": "SECRET_TOKEN", "auth": {"type": "bearer"}}, "schema"),
        ({"secret": "SECRET_TOKEN", "ttl": "soon"}, "schema"),
        ({}, "schema"),
    ],
)
async def test_what_cannot_be_read_is_an_error_in_words(call_of: CallOf, given: dict[str, Any], kind: str) -> None:
    outcome = await tool.run(asking(call_of, **given))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.source) == (kind, "secrets")


def test_a_playbook_may_ask_for_what_its_tasks_say() -> None:
    found = parse(
        playbook("""
        workload: {which: a}
        workbook: [{name: shared, tool: {kind: secrets, secret: SECRET_SHARED}}]
        workflow:
          - step: fixed
            tool: {kind: secrets, provider: gcp, name: db, project: p, auth: sa}
          - step: chosen
            tool: {kind: secrets, provider: vault, path: "app/{{ which }}"}
          - step: called
            tool: {kind: workbook, name: shared}
          - step: each
            loop: {in: [1], iterator: n}
            tool: {kind: secrets, secret: SECRET_N}
        """)
    ).playbook
    assert secret_steps(found) == {"fixed", "chosen", "called"}

    def may(auth: str | None = None, **options: Any) -> bool:
        return may_ask_for(found, entry_of(options, auth))

    assert may("sa", provider="gcp", secret="db", project="p")
    assert may(provider="vault", secret="app/b")
    assert may(secret="SECRET_SHARED")
    assert not may(None, provider="gcp", secret="db", project="p"), "with another identity"
    assert not may("sa", provider="gcp", secret="db", project="another")
    assert not may(provider="aws", secret="app/b")
    assert not may_ask_for(found, KeychainEntry(name="x", kind="static", options={"data": {}}))
