"""The ledger in memory: for tests and simulation only, held to the same contract as the one in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import msgspec

from noetl.errors import AlreadyRecorded, EventInvalid, KeyReused, VersionConflict
from noetl.ledger.batch import Part, request
from noetl.model.canonical import canonical_json
from noetl.model.catalogue import event_type
from noetl.model.envelope.columns import INLINE_FIELDS
from noetl.model.event import Appended, Draft, Event
from noetl.model.mark import Mark
from noetl.model.shard import SHARD_COUNT
from noetl.model.stream import Scope, Stream


class MemoryLedger:
    """See `Ledger` for the promises; this one forgets everything with its process."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._shards: list[list[Event]] = [[] for _ in range(SHARD_COUNT)]
        self._versions: dict[Stream, int] = {}
        self._keys: dict[tuple[Scope, str], tuple[bytes, Appended]] = {}
        self._once: set[tuple[Scope, int, str, object]] = set()
        self._ids: dict[tuple[Scope, int, int], Event] = {}
        self._grown = asyncio.Condition()

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record drafts at the end of a stream."""
        item = request(stream, drafts, expected_version).parts[0]
        async with self._grown:
            known = self._known_answer(item) or self._standing(item)
            if known is not None:
                return known
            version = self._versions.get(stream, 0)
            once = [
                (stream.scope, draft.execution_id, draft.event_type, _once_id(draft))
                for draft in drafts
                if _once_id(draft)
            ]
            if len(set(once)) < len(once) or not self._once.isdisjoint(once):
                raise AlreadyRecorded
            if expected_version is not None and expected_version != version:
                raise VersionConflict(
                    f"stream {stream.stream_id} is at version {version}, not at {expected_version}", version=version
                )
            if any((stream.scope, draft.execution_id, draft.event_id) in self._ids for draft in drafts):
                raise EventInvalid("an event_id of this append is already used by another event")
            answer = self._write(stream, drafts, version)
            self._once.update(once)
            for key, _ in item.keys:
                self._keys[stream.scope, key] = (item.digest, answer)
            self._grown.notify_all()
            return answer

    def _known_answer(self, item: Part) -> Appended | None:
        known = [self._keys.get((item.stream.scope, key)) for key, _ in item.keys]
        found = [entry for entry in known if entry is not None]
        if not found:
            return None
        if len(found) < len(known) or any(digest != item.digest for digest, _ in found):
            raise KeyReused
        return msgspec.structs.replace(found[0][1], repeated=True)

    def _standing(self, item: Part) -> Appended | None:
        """Recognise an append by its event ids."""
        known = [self._ids.get((item.stream.scope, draft.execution_id, draft.event_id)) for draft in item.drafts]
        events = [event for event in known if event is not None and event.stream == item.stream]
        if not events:
            return None
        first = events[0]
        if [event.position for event in events] != list(range(first.position, first.position + len(known))):
            return None
        return _answer(item.stream, first.stream_version, first.position, item.event_ids)

    def _write(self, stream: Stream, drafts: Sequence[Draft], version: int) -> Appended:
        events = self._shards[stream.shard]
        first_position = len(events) + 1
        ingest_time = max(self._now(), events[-1].ingest_time) if events else self._now()
        for place, draft in enumerate(drafts):
            fields = {name: getattr(draft, name) for name in Draft.__struct_fields__}
            event = Event(
                **{**fields, **{name: _plain(fields[name]) for name in INLINE_FIELDS}},
                stream_version=version + place + 1,
                shard=stream.shard,
                position=first_position + place,
                ingest_time=ingest_time,
            )
            events.append(event)
            self._ids[stream.scope, event.execution_id, event.event_id] = event
        self._versions[stream] = version + len(drafts)
        return _answer(stream, version + 1, first_position, tuple(draft.event_id for draft in drafts))

    async def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Event]:
        """Give the events of a stream."""
        for event in list(self._shards[stream.shard]):
            if event.stream == stream and event.stream_version >= from_version:
                yield _copied(event)

    async def read_execution(
        self, scope: Scope, execution_id: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of an execution."""
        shard = scope.stream(f"execution/{execution_id}").shard
        async for event in self.read_shard(shard, from_position, scope=scope, to_position=to_position):
            if event.stream.execution_id == execution_id:
                yield event

    async def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard, of one organization or of all."""
        for event in self._shards[shard][max(from_position, 1) - 1 : to_position]:
            if scope in (None, event.stream.scope):
                yield _copied(event)

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        return Mark([len(events) for events in self._shards])

    async def subscribe(
        self, cursor: Mark, *, scope: Scope | None = None, shards: Sequence[int] | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give events after the cursor, and wait for more."""
        after = {shard: cursor.positions[shard] for shard in (range(SHARD_COUNT) if shards is None else shards)}
        while True:
            for shard, position in after.items():
                events = self._shards[shard][position:]
                after[shard] = position + len(events)
                wanted = [_copied(event) for event in events if scope in (None, event.stream.scope)]
                if wanted:
                    yield wanted
            async with self._grown:
                await self._grown.wait_for(lambda: any(len(self._shards[shard]) > at for shard, at in after.items()))


def _once_id(draft: Draft) -> object:
    kind = event_type(draft.event_type)
    return getattr(draft, kind.once_per) if kind is not None and kind.once_per else None


def _plain(value: Any) -> Any:
    """Return the value as it comes back from JSON, sharing nothing with what the caller may still change."""
    return msgspec.json.decode(canonical_json(value))


def _copied(event: Event) -> Event:
    """Return the event with JSON values of its own: what a reader does to them changes nothing here."""
    return msgspec.structs.replace(event, **{name: deepcopy(getattr(event, name)) for name in INLINE_FIELDS})


def _answer(stream: Stream, version: int, position: int, event_ids: tuple[int, ...]) -> Appended:
    more = len(event_ids) - 1
    return Appended(
        first_version=version,
        last_version=version + more,
        shard=stream.shard,
        first_position=position,
        last_position=position + more,
        event_ids=event_ids,
    )
