"""The part of the whole story that is about retention: pins that come and go, and data that are let go."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue.retention import PINS_STREAM
from noetl.model.mark import Mark
from noetl.testing.samples.pipelines import Piped, named


def some_pins(dag: Piped) -> list[Transition]:
    """A policy that changes, pins of each kind, sweeps, and a generation that is retired, trimmed and purged."""
    pin = {"note": "audit", "by": "ann"}
    gone = {"dataset_uuid": dag.dataset, "dataset_version": named("gone"), "generation": named("gone/g").upper()}
    return [
        pinned(dag, ("pin.policy_set", {"by": "ann"}), context={"policy": {"as_of_days": 7, "ü": None}}),
        pinned(dag, ("pin.policy_set", {}), context={"policy": {"as_of_days": 3}}),
        pinned(
            dag,
            ("pin.created", {**pin, "pin_id": named("p1").upper(), "kind": "mark", "mark": Mark.zero().token()}),
            ("pin.created", {**pin, "pin_id": named("p1"), "kind": "mark", "mark": "other"}),
            ("pin.created", {"pin_id": named("p2"), "kind": "execution", "execution_id": str(dag.execution_id)}),
            ("pin.released", {"pin_id": named("p2"), "by": "bob"}),
            ("pin.released", {"pin_id": named("p2")}),
            ("pin.released", {"pin_id": named("nobody")}),
        ),
        pinned(
            dag,
            (
                "pin.created",
                {
                    "pin_id": named("p3"),
                    "kind": "dataset",
                    "dataset_uuid": dag.dataset,
                    "until": "2031-01-02T03:04:05Z",
                },
            ),
        ),
        pinned(
            dag,
            ("pin.swept", {"kind": "staging", "items": 3, "bytes": 1 << 40}),
            ("pin.swept", {"kind": "outbox", "items": 2, "until": "2020-01-02T03:04:05.000006Z"}),
            ("pin.swept", {"kind": "outbox", "items": 1, "until": "2020-01-01T00:00:00Z"}),
            ("pin.swept", {"kind": "outbox", "items": 0}),
        ),
        dag.of_dag(
            ("generation.retired", {**gone, "reason": "old", "served_until": "2020-01-01T01:00:00+01:00"}, {}),
            trimmed(gone, [["day=1", 1], ["day=1/city=a|b", 2], ["day=1", 1]]),
            trimmed(gone, [["day=1", 1], ["day=2", 1]]),
        ),
        dag.of_dag(
            ("generation.purged", {**gone, "reason": "older"}, {}),
            ("generation.purged", {**gone, "dataset_version": named("never"), "reason": "never served"}, {}),
        ),
    ]


def pinned(dag: Piped, *said: tuple[str, dict[str, Any]], **fields: Any) -> Transition:
    """Say something in the stream of pins."""
    drafts = [dag.event(PINS_STREAM, kind, meta, node_name=None, **fields) for kind, meta in said]
    return Transition((Append(drafts[0].stream, drafts),))


def trimmed(gone: dict[str, str], versions: list[list[Any]]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Say that versions of a generation went."""
    meta = {"dataset_uuid": gone["dataset_uuid"], "dataset_version": gone["dataset_version"], "reason": "superseded"}
    return "generation.trimmed", meta, {"context": {"versions": versions}}
