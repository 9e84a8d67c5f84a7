"""Proves that folds are handed every field an event has in the payload store: events go in, fields that are missing come out.

A fold that is never given a field gives the same rows live and in a replay, so comparing rows cannot tell. Here the bytes are
read once more, by other means than folds have, and held against each event on its way: as it is read, and as each fold gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.fold import Fold, Row
from noetl.model.event import Event
from noetl.model.stream import Scope

SHOWN: Final = 10
"""Fields that are told; more would only add to what is known to be wrong."""
_MISSING: Final = object()


class Lost(msgspec.Struct, frozen=True):
    """A field that the payload store has and a fold does not get as it is there."""

    event_id: int
    field: str
    by: str
    """Who does not get it: a projection, or whoever folds the event."""
    stored: Any
    given: Any


class _Stored(msgspec.Struct, frozen=True):
    """What the payload store has of an event."""

    schema_version: int
    fields: dict[str, Any]


class Witness:
    """Watches the events of one comparison, a group at a time."""

    def __init__(self, payloads: PayloadStore) -> None:
        self._payloads = payloads
        self._stored: dict[tuple[int, int], _Stored] = {}
        self._told: set[tuple[int, str]] = set()
        self.lost: list[Lost] = []

    async def expect(self, group: Sequence[Event]) -> None:
        """Read what the payload store has of a group's events; what cannot be read is told by whoever folds it."""
        self._stored.clear()
        for event in group:
            if event.fields_ref is None:
                continue
            try:
                data = await self._payloads.fetch(Scope(event.tenant_id, event.organization_id), event.fields_ref)
                fields = orjson.loads(data)
            except Unavailable:
                raise
            except (NoetlError, ValueError):
                continue
            if isinstance(fields, dict):
                self._stored[event.shard, event.position] = _Stored(event.schema_version, fields)

    def check(self, events: Iterable[Event]) -> None:
        """Hold events as they were read against the store."""
        if self._stored:
            for event in events:
                self._held_against(event, "whoever folds it")

    def folds(self, folds: Iterable[Fold]) -> tuple[Fold, ...]:
        """Return folds that are watched: what each of them is given is held against the store."""
        return tuple(map(self._watched, folds))

    def _watched(self, fold: Fold) -> Fold:
        def apply(row: Row | None, event: Event) -> Row | None:
            if self._stored:
                self._held_against(event, fold.projection)
            return fold.apply(row, event)

        def apply_run(row: Row, events: list[Event]) -> None:
            assert fold.apply_run is not None
            if self._stored:
                for event in events:
                    self._held_against(event, fold.projection)
            fold.apply_run(row, events)

        return replace(fold, apply=apply, apply_run=None if fold.apply_run is None else apply_run)

    def _held_against(self, event: Event, who: str) -> None:
        stored = self._stored.get((event.shard, event.position))
        # An upcaster may give fields other names.
        if stored is None or stored.schema_version != event.schema_version:
            return
        for field, part in stored.fields.items():
            given = getattr(event, field, _MISSING)
            pairs = part.items() if field != "current_item" else [(None, part)]
            for key, value in pairs:
                got = given if key is None else given.get(key, _MISSING) if isinstance(given, dict) else _MISSING
                if got is _MISSING or got != value:
                    self._tell(event, field if key is None else f"{field}.{key}", who, value, got)

    def _tell(self, event: Event, field: str, who: str, value: Any, got: Any) -> None:
        if (event.event_id, field) in self._told or len(self.lost) >= SHOWN:
            return
        self._told.add((event.event_id, field))
        self.lost.append(Lost(event.event_id, field, who, value, None if got is _MISSING else got))
