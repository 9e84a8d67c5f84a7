"""Events in old schemas brought to the newest as they are read: Arrow batches go in, Arrow batches come out.

Only rows of a schema version that has an upcaster become Python objects; all others stay in Arrow.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from noetl.errors import InputError, Unsupported
from noetl.kernel.ledger.rows import to_events
from noetl.kernel.projections.upcast import Upcaster, Upcasters
from noetl.model.canonical import exact_json
from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event import OBJECT_FIELDS, REFERENCE_FIELDS, Event
from noetl.spark.source.columns import ARROW_SCHEMA, JSON, NAMES

_BUILT_IN: Final = {kind.schema_name: kind.version for kind in EVENT_TYPES}
_ref_json = msgspec.json.Encoder(order="sorted").encode


class SourceUpcasters(Upcasters):
    """Upcasters that know which versions they start from."""

    def __init__(self) -> None:
        super().__init__()
        self.old: set[tuple[str, int]] = set()
        """The schemas and versions that an upcaster leads on from."""

    def register(self, schema_name: str, from_version: int, upcaster: Upcaster) -> None:
        """Add the step from one version of a schema to the next."""
        super().register(schema_name, from_version, upcaster)
        self.old.add((schema_name, from_version))

    def newest(self, schema_name: str) -> int | None:
        """Return the newest version of a schema, or None for one whose versions are not known."""
        built_in = _BUILT_IN.get(schema_name)
        steps = [version + 1 for name, version in self.old if name == schema_name]
        return max(steps, default=built_in) if built_in is None else built_in


def loaded(names: Iterable[str]) -> SourceUpcasters:
    """Return the upcasters that functions named `module:name` register, checked for gaps."""
    upcasters = SourceUpcasters()
    for name in names:
        register: Callable[[Upcasters], object] = _named(name)
        register(upcasters)
    upcasters.check()
    return upcasters


def current(batch: pa.RecordBatch, upcasters: SourceUpcasters, keep: Callable[[Event], bool]) -> pa.RecordBatch:
    """Return a batch with its old rows in their newest schema, without those of them that are not to be kept."""
    stale = _stale(batch, upcasters)
    if not stale:
        return batch
    if batch.schema.names != ARROW_SCHEMA.names:
        name, version = next(iter(stale))
        raise Unsupported(
            f"the ledger holds events of schema {name} version {version}, and no upcaster leads from there to version "
            f"{upcasters.newest(name)}: name yours with the option upcasters, or upgrade NoETL where this is run"
        )
    pairs = list(zip(batch.column("schema_name").to_pylist(), batch.column("schema_version").to_pylist(), strict=True))
    pieces: list[pa.RecordBatch] = []
    start = 0
    for end in range(1, len(pairs) + 1):
        if end < len(pairs) and (pairs[end] in stale) == (pairs[start] in stale):
            continue
        piece = batch.slice(start, end - start)
        if pairs[start] in stale:
            events = map(upcasters.upcast, to_events(_rows(piece)))
            piece = as_batch(event for event in events if keep(event))
        pieces.append(piece)
        start = end
    table = pa.Table.from_batches(pieces, ARROW_SCHEMA).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batch.slice(0, 0)


def as_batch(events: Iterable[Event]) -> pa.RecordBatch:
    """Return events as the ledger's columns hold them, to the letter."""
    rows = [[_held(name, getattr(event, name)) for name in NAMES] for event in events]
    columns = zip(*rows, strict=True) if rows else [()] * len(NAMES)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _stale(batch: pa.RecordBatch, upcasters: SourceUpcasters) -> set[tuple[str, int]]:
    """Return the schemas and versions in a batch that are not the newest."""
    found = pa.Table.from_batches([batch]).group_by(["schema_name", "schema_version"]).aggregate([])
    pairs = ((row["schema_name"], row["schema_version"]) for row in found.to_pylist())
    return {(name, version) for name, version in pairs if upcasters.newest(name) not in (None, version)}


def _rows(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _held(name: str, value: Any) -> Any:
    if name not in JSON:
        return value
    if name in REFERENCE_FIELDS:
        return None if value is None else _ref_json(value).decode()
    if value is None or (not value and name in OBJECT_FIELDS):
        return None
    return exact_json(value).decode()


def _named(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InputError(f"upcasters: {name!r} is not of the form module:name")
    # A project's own modules lie where its programs are started, which Spark's Python does not look at by itself.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as problem:
        raise InputError(f"upcasters: {name!r} cannot be found: {problem}") from problem
