"""The part of the whole story that is about lineage: told, told better, and too large for its event."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Transition
from noetl.testing.samples.executions import one
from noetl.testing.samples.pipelines import Piped, named


def some_lineage(dag: Piped) -> list[Transition]:
    """Lineage that was unknown, then known column by column, then a payload."""
    orders = named("orders").upper()
    edges = [
        ["day", orders, "day", "direct"],
        ["ü total", orders, "amount", "aggregated"],
        ["one", None, None, "constant"],
        [None, orders, "city", "indirect"],
    ]
    inputs = [{"alias": "o", "dataset_uuid": orders, "dataset_version": named("g")}]
    return [
        lineage(dag, 1, "unknown", context={"reason": "no plan", "columns": [["day", orders, None, "opaque"]]}),
        lineage(dag, 2, "sql", context={"columns": edges, "inputs": inputs}),
        lineage(dag, 3, "plan", context={"inputs": inputs}, payload_ref=dag.drafts.payload("1f" * 32)),
    ]


def lineage(dag: Piped, number: int, how: str, **fields: Any) -> Transition:
    """Say where a generation comes from."""
    meta = {
        "dataset_uuid": dag.dataset,
        "dataset_version": dag.dataset_version.upper(),
        "lineage_hash": f"l{number}",
        "how": how,
        "version": number,
    }
    return one(dag.event(f"dataset/{dag.dataset_version}", "dataset.lineage_set", meta, **fields))
