"""Every way the rows of invalidations and backfills change, one after another."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Append, Transition
from noetl.testing.samples.pipelines import Piped, named

_BY = {"by": "ann"}


def some_changes(dag: Piped) -> list[Transition]:
    """Invalidations that are worked off, closed and empty; backfills that end each way, and one that goes on."""
    wrong = {
        "dataset_uuid": dag.dataset,
        "dataset_version": dag.dataset_version,
        "reason": "correction",
        "requested_by": "ann",
    }
    one, other = named("g1"), named("g2")
    done = {"generation": one, "task_id": named("t1")}
    more = {"generation": other, "task_id": named("t2")}
    told = {
        "dag": dag.dag,
        "generation": dag.generation,
        "dataset_uuid": dag.dataset,
        "dataset_version": dag.dataset_version,
        "total": 3,
        "max_in_flight": 8,
        "requested_by": "ann",
    }
    asked = {"context": {"selection": {"column": "day", "start": "1", "end": "4", "ü": None}}}
    keys = {"context": {"prefix": "day=", "keys": "1\n2"}}
    rest = {"context": {"prefix": "", "keys": "day=3"}}

    def backfill(number: int, *kinds: tuple[str, dict[str, Any], dict[str, Any]]) -> Transition:
        requested = ("requested", told, {**asked, "payload_ref": dag.drafts.payload("ba" * 32)})
        return _said(dag, f"backfill/{number}", *((f"backfill.{kind}", *more) for kind, *more in (requested, *kinds)))

    first, last = ("queued", {"first": 0, "count": 2}, keys), ("queued", {"first": 2, "count": 1}, rest)
    return [
        _said(
            dag,
            "invalidation/110",
            (
                "dataset.invalidated",
                {**wrong, "scope": "partition", "partition_key": "day=1", "note": "ü"},
                {"context": {"dependents": {one: 2, other: 1}}},
            ),
        ),
        _said(dag, "invalidation/110", ("invalidation.processed", done, {})),
        _said(dag, "invalidation/110", ("invalidation.processed", more, {}), ("invalidation.processed", done, {})),
        _said(
            dag,
            "invalidation/120",
            (
                "dataset.invalidated",
                {**wrong, "scope": "row_range"},
                {"context": {"dependents": {one: 1}, "row_filter": {"amount": {"gte": 1.5, "lt": None}}}},
            ),
            ("invalidation.closed", {"because": "replaced", **_BY}, {}),
            ("invalidation.processed", done, {}),
        ),
        _said(dag, "invalidation/130", ("dataset.invalidated", {**wrong, "scope": "partition"}, {})),
        backfill(210, first),
        _said(dag, "backfill/210", ("backfill.paused", _BY, {"error": "too many failed"})),
        _said(dag, "backfill/210", ("backfill.resumed", _BY, {})),
        _said(dag, "backfill/210", ("backfill.queued", last[1], last[2])),
        _said(dag, "backfill/210", ("backfill.advanced", {"made": 2, "tasks": 1}, {})),
        backfill(220, first, last, ("advanced", {"made": 3, "tasks": 3}, {}), ("completed", {}, {})),
        backfill(230, first, last, ("failed", {"failed": 2}, {"error": "2 tasks failed"})),
        backfill(240, first, ("cancelled", _BY, {"error": "not wanted"})),
        backfill(250, first, last, ("paused", _BY, {}), ("resumed", _BY, {})),
    ]


def _said(dag: Piped, stream_id: str, *kinds: tuple[str, dict[str, Any], dict[str, Any]]) -> Transition:
    drafts = [dag.event(stream_id, kind, meta, **fields) for kind, meta, fields in kinds]
    return Transition((Append(drafts[0].stream, drafts),))
