"""The rows of which column comes from which, as their events leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.model.event import Event
from noetl.project.folds.pipelines.tables import Tables, identity, part, payload


def _lineage_set(tables: Tables, event: Event) -> None:
    meta = event.meta
    named = {"dataset_version": identity(meta.get("dataset_version")), "version": event.stream_version}
    told = {"how": meta.get("how"), "job": event.node_name}
    dataset = identity(meta.get("dataset_uuid"))
    tables.put(
        "dataset_lineage",
        {
            **named,
            **told,
            "dataset_uuid": dataset,
            "number": meta.get("version"),
            "lineage_hash": meta.get("lineage_hash"),
            "reason": part(event, "reason"),
            "inputs": part(event, "inputs", []),
            "columns_ref": payload(event),
        },
    )
    for place, (column, source, source_column, kind) in enumerate(part(event, "columns", [])):
        tables.put(
            "column_lineage",
            {
                **named,
                **told,
                "place": place,
                "output_dataset_uuid": dataset,
                "output_column": column,
                "input_dataset_uuid": identity(source),
                "input_column": source_column,
                "kind": kind,
            },
        )


LINEAGE_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {"dataset.lineage_set": _lineage_set}
