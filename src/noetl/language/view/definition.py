"""A view as a value: what was written goes in, every default filled in. Reads nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from noetl.language.dag.times import seconds_of
from noetl.model.canonical import canonical_json

SinkKind = Literal["postgres", "table", "dataset"]
INTERVAL_MS: Final = 1_000
BATCH_EVENTS: Final = 50_000
EVENTS: Final = "events"
"""The table a SELECT over events reads."""
ROWS: Final = "rows"
"""The table a rollup reads."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One view, as it is deployed and run."""

    name: str
    keys: tuple[str, ...]
    sql: str | None = None
    file: str | None = None
    function: str = "view"
    rollup: str | None = None
    keep: str | None = None
    types: tuple[str, ...] = ()
    execution: str | None = None
    since: str | None = None
    dataset: str | None = None
    time_column: str = "event_time"
    watermark_seconds: float | None = None
    sink: SinkKind = "postgres"
    credential: str | None = None
    table: str | None = None
    target_dataset: str | None = None
    interval_ms: int = INTERVAL_MS
    batch_events: int = BATCH_EVENTS
    checkpoint: str | None = None
    shared: bool = False
    spark: dict[str, str] = {}

    @property
    def relation(self) -> str:
        """The table its SELECT reads."""
        return self.dataset or EVENTS

    def source(self) -> dict[str, str]:
        """Return what the data source is told besides the organization."""
        given = {"types": ",".join(self.types), "execution": self.execution, "since": self.since}
        return {name: value for name, value in given.items() if value}


def definition_of(written: Mapping[str, Any], sql: str | None) -> Definition:
    """Read a view as it was written; `sql` is its SELECT, from wherever it came."""
    events = written["source"].get("events")
    chosen = events if isinstance(events, dict) else {"types": events}
    sink = written.get("sink", "postgres")
    table = sink.get("postgres") if isinstance(sink, dict) else None
    time, checkpoint = written.get("event_time") or {}, written.get("checkpoint") or {}
    given: dict[str, Any] = {
        "name": written["name"],
        "keys": _listed(written["keys"]),
        "sql": sql,
        "file": written.get("file") if sql is None else None,
        "function": written.get("function"),
        "rollup": written.get("rollup"),
        "keep": written.get("keep"),
        "types": _listed(chosen.get("types")),
        "execution": chosen.get("execution"),
        "since": chosen.get("since"),
        "dataset": written["source"].get("dataset"),
        "time_column": time.get("column"),
        "watermark_seconds": seconds_of(time["watermark"]) if time else None,
        "sink": "postgres" if not isinstance(sink, dict) else "dataset" if "dataset" in sink else "table",
        "credential": None if table is None else table.get("credential"),
        "table": None if table is None else table.get("table", written["name"]),
        "target_dataset": sink.get("dataset") if isinstance(sink, dict) else None,
        "interval_ms": written.get("barrier_interval_ms"),
        "batch_events": written.get("batch_events"),
        "checkpoint": checkpoint.get("path"),
        "shared": checkpoint.get("shared"),
        "spark": written.get("spark"),
    }
    return msgspec.convert({name: value for name, value in given.items() if value is not None}, Definition)


def digest_of(definition: Definition, files: Mapping[str, bytes]) -> str:
    """Return the version of a view: the digest of what it says and of its code. Layout and comments do not matter."""
    code = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(canonical_json([msgspec.to_builtins(definition), code])).hexdigest()


def _listed(given: Any) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else list(given)
