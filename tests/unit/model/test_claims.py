"""What an event claims of the world: its locators can be read, its references lead to its own organization's payloads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.model.event import Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.payload_ref import payload_uri
from noetl.model.stream import Scope
from noetl.model.validate import claim_problems
from noetl.testing.samples.drafts import PRODUCER, Drafts

DRAFTS = Drafts(Scope("acme", "care"), SnowflakeGenerator(1, lambda: 1_790_000_000_000).mint)
WORKER = "noetl://tenant/acme/org/care/cluster/c/node/n1/process/7/worker/n1"
REF = msgspec.to_builtins(DRAFTS.payload(rows=3))


def claimed(**fields: Any) -> Draft:
    return DRAFTS.command(7, "work/1/0", "command.claimed", **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"meta": {"attempt": 1, "worker": WORKER}},
        {"meta": {"attempt": 1, "worker": "w1"}},
        {"meta": {"attempt": 1, "ref": REF, "artifacts": [REF]}},
        {"context": {"said": "noetl://is no claim of ours"}},
        {"result": {"uri": "noetl://nonsense", "sha256": "none of ours"}},
        {"current_item": REF},
    ],
)
def test_what_holds_is_let_pass(fields: dict[str, Any]) -> None:
    assert claim_problems(claimed(**fields)) == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"producer": "tests"}, "producer: 'tests' is no locator: 'tests' does not start with noetl://"),
        ({"producer": WORKER.removesuffix("/n1")}, "the kind 'worker' is not followed by an id"),
        ({"producer": f"{PRODUCER}/"}, "a name is empty"),
        (
            {"producer": "noetl://tenant/t/org/o/cluster/c/region/r/node/n/worker/w"},
            "is written 'noetl://tenant/t/org/o/cluster/c/region/r/none/node/n/none/worker/w'",
        ),
        ({"meta": {"attempt": 1, "worker": "noetl://nonsense"}}, "meta.worker: 'noetl://nonsense' is no locator"),
        ({"meta": {"attempt": 1, "of": [{"at": "noetl://nonsense"}]}}, "meta.of[0].at: 'noetl://nonsense'"),
        ({"context": {"of": [{**REF, "sha256": "ab"}]}}, "context.of[0]: payload_ref.sha256 is not a SHA-256"),
        (
            {"result": {"ref": {**REF, "uri": payload_uri("acme", "other", REF["sha256"])}}},
            "result.ref: payload_ref.uri is not the durable object of that digest in this tenant and organization",
        ),
        ({"current_item": {**REF, "bytes": "many"}}, "current_item: no reference to a payload: Expected `int`"),
    ],
)
def test_what_does_not_hold_is_told_with_its_place(fields: dict[str, Any], problem: str) -> None:
    """INV-157."""
    assert problem in "; ".join(claim_problems(claimed(**fields)))


def test_the_meta_of_a_users_own_event_is_the_users() -> None:
    fields = {"meta": {"link": "noetl://whatever the user means"}}
    assert claim_problems(DRAFTS.draft(DRAFTS.scope.stream("business/1"), "business.paid", 7, **fields)) == []
