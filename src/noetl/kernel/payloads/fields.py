"""Events go in, in their order, and come out with the fields that lie in the payload store put back: what folds read by.

Fields that cannot be read end their stream for this reader: neither that event nor a later one of the stream comes out,
and `broken` says why. Those of other streams go on. Fields that were erased, as an event says, stay behind an `ErasedRef`.
A store that does not answer is no such case: it is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from noetl.errors import Corrupt, Erased, NoetlError, Unavailable
from noetl.kernel.payloads.codec import decode_json
from noetl.kernel.payloads.envelope import with_fields
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.broken_stream import BrokenStream, broken_at
from noetl.model.event import Event
from noetl.model.payload_ref import ErasedRef, PayloadRef
from noetl.model.stream import Scope, Stream

TOGETHER_BYTES: Final = 32 << 20
"""Bytes of fields that are in memory at one time, but for an event that alone has more."""
_AT_ONCE: Final = 8

Erasures = Callable[[str], Awaitable[bool]]
"""Tells whether an event says that the payloads of a tenant were erased."""


async def nothing_erased(_tenant_id: str) -> bool:
    """Say that no tenant was erased."""
    return False


class FieldsReader:
    """Reads the fields of the events of some shards, each shard by position."""

    def __init__(
        self,
        payloads: PayloadStore | None,
        erasures: Erasures = nothing_erased,
        *,
        stopped: Iterable[BrokenStream] = (),
        together_bytes: int = TOGETHER_BYTES,
    ) -> None:
        """Take where fields lie, what was erased, and the streams that stand still already.

        Without a store events come out as they are, and folds refuse those whose fields lie there.
        """
        self._payloads = payloads
        self._erasures = erasures
        self._together_bytes = together_bytes
        self._stopped: dict[Stream, int] = {one.stream: one.position for one in stopped}
        self.broken: list[BrokenStream] = []
        """The streams that were found to stand still."""

    def has_work(self, event: Event) -> bool:
        """Tell whether an event may come out otherwise than it goes in."""
        return event.fields_ref is not None or bool(self._stopped)

    def divided(self, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        """Divide events where their fields would take too much memory together."""
        start, size = 0, 0
        for place, event in enumerate(events):
            if event.fields_ref is None:
                continue
            if size and size + event.fields_ref.bytes > self._together_bytes:
                yield events[start:place]
                start, size = place, 0
            size += event.fields_ref.bytes
        yield events[start:]

    async def read(self, events: Sequence[Event]) -> list[Event]:
        """Return those of the events that can be folded, with their fields."""
        referring = [event for event in events if event.fields_ref is not None]
        if not referring and not self._stopped:
            return list(events)
        fetched: dict[int, Event | BrokenStream] = {}
        wanted = [event for event in referring if not self._stands(event)]
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            fetched |= zip((id(event) for event in some), await asyncio.gather(*map(self._fetched, some)), strict=True)
        return list(self._passed(events, fetched))

    def _passed(self, events: Sequence[Event], fetched: Mapping[int, Event | BrokenStream]) -> Iterator[Event]:
        for event in events:
            if self._stopped and self._stands(event):
                continue
            found = fetched.get(id(event), event)
            if isinstance(found, BrokenStream):
                self._stopped[found.stream] = found.position
                self.broken.append(found)
            else:
                yield found

    def _stands(self, event: Event) -> bool:
        if not self._stopped:
            return False
        stream = Stream(event.tenant_id, event.organization_id, event.stream_id)
        at = self._stopped.get(stream.root)
        return at is not None and event.position >= at

    async def _fetched(self, event: Event) -> Event | BrokenStream:
        ref = event.fields_ref
        assert ref is not None
        if self._payloads is None:
            return event
        try:
            moved = decode_json(await self._payloads.fetch(Scope(event.tenant_id, event.organization_id), ref))
            return with_fields(event, _checked(moved, ref))
        except Unavailable:
            raise
        except Erased as problem:
            if await self._erasures(event.tenant_id):
                return msgspec.structs.replace(event, fields_ref=ErasedRef(**msgspec.structs.asdict(ref)))
            return broken_at(event, problem.code, f"{problem.message}, and no event says so")
        except NoetlError as problem:
            return broken_at(event, problem.code, problem.message)


def _checked(moved: Any, ref: PayloadRef) -> dict[str, Any]:
    parts = {"context": dict, "result": dict, "current_item": object}
    if not isinstance(moved, dict) or any(
        name not in parts or not isinstance(part, parts[name]) for name, part in moved.items()
    ):
        raise Corrupt(f"the payload {ref.sha256} holds no fields of an event")
    return moved
