"""The ledger in memory: for tests and simulation only, held to the same contract as the one in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from noetl.errors import AlreadyRecorded, EventInvalid, KeyReused, LeaseLost, Unavailable, Unsupported, VersionConflict
from noetl.kernel.ledger.batch import Part, request, work_request
from noetl.kernel.ledger.chain.links import NO_LINK, Link, made_link
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.memory_work import MemoryWork, NewRows
from noetl.kernel.ledger.transition import Transition
from noetl.model.canonical import canonical_json
from noetl.model.catalogue import event_type
from noetl.model.envelope.columns import INLINE_FIELDS
from noetl.model.event import Appended, Draft, Event
from noetl.model.mark import Mark, ReadToken, VersionToken
from noetl.model.stream import SHARD_COUNT, Scope, Stream

_Once = tuple[Scope, int, str, object]


class _Made(NamedTuple):
    """Events that may stand, for one stream."""

    item: Part
    once: list[_Once]
    """The facts among them that may stand once."""
    events: list[Event]


class MemoryLedger:
    """See `Ledger` for the promises; this one forgets everything with its process, and collects no payloads.

    For transitions it needs the rules that turn events into rows, `new_rows`; without them it takes appends only.
    """

    def __init__(
        self, now: Callable[[], datetime] = lambda: datetime.now(UTC), new_rows: NewRows | None = None
    ) -> None:
        self._now = now
        self._work = None if new_rows is None else MemoryWork(new_rows, now)
        self._shards: list[list[Event]] = [[] for _ in range(SHARD_COUNT)]
        self._links: list[list[Link]] = [[] for _ in range(SHARD_COUNT)]
        self._versions: dict[Stream, int] = {}
        self._keys: dict[tuple[Scope, str], tuple[bytes, Appended]] = {}
        self._once: set[tuple[Scope, int, str, object]] = set()
        self._ids: dict[tuple[Scope, int, int], Event] = {}
        self._grown = asyncio.Condition()
        self.checks = Checks()
        """What is looked at in events before they are appended."""

    @property
    def work(self) -> MemoryWork:
        """The rows that transitions have left, and their leases."""
        if self._work is None:
            raise Unsupported("this ledger was made without the rules of work")
        return self._work

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record drafts at the end of a stream."""
        item = request(stream, drafts, expected_version, self.checks).parts[0]
        async with self._grown:
            known = self._known_answer(item) or self._standing(item)
            if known is not None:
                return known
            # A fact that stands already is told before a wrong version.
            self._once_of(item, drafts, ())
            self._check_version(item)
            (answer,) = self._keep([self._made(item, drafts, self._time([item]), ())])
            self._grown.notify_all()
            return answer

    async def transact(self, transition: Transition) -> tuple[Appended, ...]:
        """Record a change of work."""
        work, parts = self.work, work_request(transition, self.checks).parts
        scope = parts[0].stream.scope
        async with self._grown:
            known = [self._standing(item) for item in parts]
            if None not in known:
                repeated = all(item.keys for item in parts)
                return tuple(msgspec.structs.replace(one, repeated=repeated) for one in known if one is not None)
            for item in parts:
                self._known_answer(item)
            if work.broken(scope, transition.fences):
                name = parts[0].stream.stream_id
                raise LeaseLost(f"the lease for this append to {name} belongs to another holder now, or ran out")
            for item in parts:
                self._check_version(item)
            at = self._time(parts)
            made: list[_Made] = []
            for item, append in zip(parts, transition.appends, strict=True):
                made.append(self._made(item, append.drafts, at, made))
            work.apply(scope, [event for each in made for event in each.events])
            answers = self._keep(made)
            self._grown.notify_all()
            return answers

    async def covered(self, token: ReadToken | VersionToken, scope: Scope, seconds: float) -> None:
        """Wait for the event of a token; what stands for a version can be read as soon as it is recorded."""
        if isinstance(token, VersionToken):
            return
        key = (scope, token.execution_id, token.event_id)
        try:
            async with asyncio.timeout(seconds), self._grown:
                await self._grown.wait_for(lambda: key in self._ids)
        except TimeoutError:
            raise Unavailable(f"event {token.event_id} is not in the ledger after {seconds:g} s") from None

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

    def _check_version(self, item: Part) -> None:
        stream, expected, version = item.stream, item.expected_version, self._versions.get(item.stream, 0)
        if expected is not None and expected != version:
            raise VersionConflict(
                f"stream {stream.stream_id} is at version {version}, not at {expected}", version=version
            )

    def _once_of(self, item: Part, drafts: Sequence[Draft], beside: Sequence[_Made]) -> list[_Once]:
        """Return the facts among the drafts that may stand once, none of which stands yet."""
        scope = item.stream.scope
        once = [(scope, draft.execution_id, draft.event_type, _once_id(draft)) for draft in drafts if _once_id(draft)]
        known = [fact for other in beside for fact in other.once]
        if len({*once, *known}) < len(once) + len(known) or not self._once.isdisjoint(once):
            raise AlreadyRecorded
        return once

    def _time(self, parts: Sequence[Part]) -> datetime:
        """Return one time for all: it never runs backwards within a shard."""
        last = [events[-1].ingest_time for part in parts if (events := self._shards[part.stream.shard])]
        return max([self._now(), *last])

    def _made(self, item: Part, drafts: Sequence[Draft], at: datetime, beside: Sequence[_Made]) -> _Made:
        """Number the drafts behind what stands, and behind those of the same change that go to the same shard."""
        stream, once = item.stream, self._once_of(item, drafts, beside)
        if any((stream.scope, draft.execution_id, draft.event_id) in self._ids for draft in drafts):
            raise EventInvalid("an event_id of this append is already used by another event")
        version = self._versions.get(stream, 0)
        ahead = (len(other.events) for other in beside if other.item.stream.shard == stream.shard)
        position = len(self._shards[stream.shard]) + sum(ahead)
        made = []
        for place, draft in enumerate(drafts, 1):
            fields = {name: getattr(draft, name) for name in Draft.__struct_fields__}
            made.append(
                Event(
                    **{**fields, **{name: _plain(fields[name]) for name in INLINE_FIELDS}},
                    stream_version=version + place,
                    shard=stream.shard,
                    position=position + place,
                    ingest_time=at,
                )
            )
        return _Made(item, once, made)

    def _keep(self, made: Sequence[_Made]) -> tuple[Appended, ...]:
        """Let the events stand."""
        answers = []
        for item, once, events in made:
            stream = item.stream
            self._shards[stream.shard] += events
            self._ids |= {(stream.scope, event.execution_id, event.event_id): event for event in events}
            self._versions[stream] = events[-1].stream_version
            self._once.update(once)
            answer = _answer(stream, events[0].stream_version, events[0].position, item.event_ids)
            self._keys |= {(stream.scope, key): (item.digest, answer) for key, _ in item.keys}
            answers.append(answer)
        for shard in sorted({each.item.stream.shard for each in made}):
            self._link(shard, [each for each in made if each.item.stream.shard == shard])
        return tuple(answers)

    def _link(self, shard: int, made: Sequence[_Made]) -> None:
        """Bind what one call wrote to a shard to what stood there before."""
        links, first = self._links[shard], made[0].events[0]
        runs = [(each.events[0].stream_version, len(each.events)) for each in made]
        leaves = b"".join(each.item.leaves for each in made)
        previous = links[-1].link if links else NO_LINK
        links.append(made_link(shard, first.position, first.ingest_time, runs, leaves, previous))

    async def links(
        self, shard: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[list[Link]]:
        """Give the links of a shard."""
        if found := [
            link
            for link in self._links[shard]
            if link.last_position >= from_position and (to_position is None or link.first_position <= to_position)
        ]:
            yield found

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
