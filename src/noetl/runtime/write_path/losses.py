"""What this process says of acknowledged facts that are not in the ledger: those a stream lost, and those in it alone.

While it runs it follows the notes of its node, tells of losses when they happen, records them in the database for all
other nodes, and lets notes go that nobody needs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.losses.detection import NoteFollowing, Unwritten, missing_of
from noetl.kernel.stream.losses.journal import Noted
from noetl.kernel.stream.losses.journal_files import forgotten_in, noted_in
from noetl.kernel.stream.losses.recorded import RecordedLosses
from noetl.kernel.stream.port import EventStream
from noetl.kernel.stream.write_path.backlog import still_waiting
from noetl.kernel.stream.write_path.written_messages import still_unread, unread
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.wiring import Runtime

_log = logging.getLogger(__name__)

NAMED: Final = 20
"""So many events are named in a line of the log."""
LOOK_SECONDS: Final = 5.0
"""How often a process that runs looks at the notes of its node."""
_BRING_THEM = "start a process with its connection to NATS, which writes them"


def journal_directory(settings: Settings) -> Path:
    """Return where processes of this node note which facts the stream acknowledged."""
    return settings.runtime.home / "run" / "published"


class Losses(msgspec.Struct, frozen=True):
    """What became of acknowledged facts, as far as this node and the records of all others tell."""

    lost: list[Noted]
    """Gone, and nobody acknowledged it yet, whichever node found out."""
    in_stream: list[Noted]
    noted: int
    """How many facts were looked for, of those that this node has noted."""
    acknowledged: int
    """How many losses somebody acknowledged."""
    unlooked: int = 0
    """How many facts of this node are not in the ledger, and there is no stream to look for them in."""


async def unwritten_facts(runtime: Runtime, writes: EventStream) -> Unwritten:
    """Return what became of the facts that processes of this node published; the stream is asked for each."""
    return await _notes(runtime, writes).look_at_all()


async def read_losses(runtime: Runtime, *, forget: bool = False) -> Losses:
    """Return what is known by the stream of writes that the settings name, or without one by the records alone."""
    if not mirrors(runtime.settings):
        return await known_losses(runtime, None, forget=forget)
    async with open_stream(runtime.settings, runtime.database, "writes") as writes:
        return await known_losses(runtime, writes, forget=forget)


async def known_losses(runtime: Runtime, writes: EventStream | None, *, forget: bool = False) -> Losses:
    """Return what is known on this node, looked at anew, and what was recorded by others; `forget` acknowledges all of it."""
    recorded = RecordedLosses(runtime.database)
    notes, own = None, Unwritten([], [])
    if writes is not None:
        notes = _notes(runtime, writes)
        own = await notes.look_at_all()
        await recorded.record(await _unacknowledged(recorded, notes, own.lost))
    lost = await recorded.told()
    unlooked, noted = 0, own.noted
    if writes is None:
        unlooked = len(await _noted_missing(runtime))
        noted = sum(map(len, noted_in(journal_directory(runtime.settings))))
    if forget and lost:
        # The database first: whoever finds a loss acknowledged there lets its notes go.
        await recorded.acknowledge(lost)
        if notes is not None and own.lost:
            await notes.forget(own.lost)
            # Notes that nobody needs any more go at once, as far as no process writes their files.
            await notes.look_at_all()
    return Losses(lost, own.in_stream, noted, (await recorded.counts())[1], unlooked)


def _notes(runtime: Runtime, writes: EventStream) -> NoteFollowing:
    return NoteFollowing(runtime.database, writes, journal_directory(runtime.settings))


async def _unacknowledged(recorded: RecordedLosses, notes: NoteFollowing, lost: Sequence[Noted]) -> list[Noted]:
    """Return those of the losses that nobody acknowledged; notes of the others are let go of."""
    known = await recorded.acknowledged_of(lost)
    if known:
        await notes.forget(known)
    gone = {one.message_id for one in known}
    return [one for one in lost if one.message_id not in gone]


@asynccontextmanager
async def telling_losses(
    runtime: Runtime, writes: EventStream | None, lost: Callable[[int], None] = lambda facts: None
) -> AsyncIterator[None]:
    """Tell which facts a stream lost, at once and as soon as it happens during the block; `lost` gets how many there are.

    Without a stream, what other nodes recorded is told of.
    """
    notes = None if writes is None else _notes(runtime, writes)
    telling = _Telling(RecordedLosses(runtime.database), notes, lost)
    await telling.try_to_look()
    task = asyncio.get_running_loop().create_task(telling.go_on(), name="noetl-losses")
    try:
        yield
    finally:
        await ended(task)


class _Telling:
    def __init__(self, recorded: RecordedLosses, notes: NoteFollowing | None, lost: Callable[[int], None]) -> None:
        self._recorded = recorded
        self._notes = notes
        self._lost = lost
        self._told: set[str] = set()

    async def go_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.try_to_look()

    async def try_to_look(self) -> None:
        """Look and tell; where database or stream do not answer, the next look finds the same."""
        try:
            if self._notes is not None:
                await self._look(self._notes)
        except (NoetlError, OSError):
            _log.debug("the notes of acknowledged facts could not be compared", exc_info=True)
        try:
            # What others recorded is known also where this node's stream does not answer.
            self._lost((await self._recorded.counts())[0])
        except NoetlError:
            _log.debug("the recorded losses could not be counted", exc_info=True)

    async def _look(self, notes: NoteFollowing) -> None:
        found = await _unacknowledged(self._recorded, notes, await notes.look())
        new = [one for one in found if one.message_id not in self._told]
        await self._recorded.record(new)
        if new:
            _say(new)
        self._told = {one.message_id for one in found}


def _say(lost: list[Noted]) -> None:
    ids = ", ".join(str(one.event_id) for one in lost[:NAMED])
    more = ", …" if len(lost) > NAMED else ""
    _log.error(
        "the stream lost %d facts that it had acknowledged: events %s%s; `noetl stream lost` lists them with the tokens "
        "of their writers", len(lost), ids, more,
    )  # fmt: skip


async def tell_noted(runtime: Runtime) -> None:
    """Say that acknowledged facts are not in the ledger, in a process that has no stream to look for them in."""
    if missing := await _noted_missing(runtime):
        _log.warning(
            "%d facts that a stream acknowledged are not in the ledger, and the settings name no NATS server to take them "
            "from; set event_store.distribution_backend to nats-jetstream, with its connection.url", len(missing),
        )  # fmt: skip


async def not_in_the_ledger(runtime: Runtime, seconds: float) -> list[str]:
    """Say what was accepted and is not in the ledger, after waiting a while for what is on its way."""
    began, said = time.monotonic(), list[str]()
    if waiting := await still_waiting(runtime.database, seconds):
        said.append(f"{waiting:,} decided events wait and are not in the ledger: {_BRING_THEM}")
    lost = {one.message_id for one in await RecordedLosses(runtime.database).told()}
    if not mirrors(runtime.settings):
        if missing := await _noted_missing(runtime):
            said.append(f"{len(missing):,} acknowledged facts are not in the ledger: {_BRING_THEM}")
    else:
        async with open_stream(runtime.settings, runtime.database, "writes") as writes:
            try:
                said += await _unread(runtime, writes, max(0.0, began + seconds - time.monotonic()))
                lost |= {one.message_id for one in (await unwritten_facts(runtime, writes)).lost}
            except Unavailable as problem:
                _log.warning("whether every acknowledged fact is in the ledger is not known: %s", problem.message)
                if missing := await _noted_missing(runtime):
                    said.append(f"{len(missing):,} acknowledged facts are not in the ledger")
    if lost:
        said.append(f"{len(lost):,} acknowledged facts are gone; `noetl stream lost` names them")
    return said


async def _unread(runtime: Runtime, writes: EventStream, seconds: float) -> list[str]:
    """Say which shards of the stream have messages that do not come to the ledger."""
    left = await still_unread(runtime.database, writes, await unread(runtime.database, writes), seconds)
    if not left:
        return []
    shards = ", ".join(str(place.shard) for place in sorted(left))
    return [
        f"the stream {writes.name} has acknowledged messages of shards {shards} that are not in the ledger: {_BRING_THEM}"
    ]


async def _noted_missing(runtime: Runtime) -> list[Noted]:
    """Return what this node noted and the ledger does not have, but for losses that are recorded."""
    directory, recorded = journal_directory(runtime.settings), RecordedLosses(runtime.database)
    found = [one for noted in noted_in(directory) for one in await missing_of(runtime.database, noted)]
    if not found:
        return []
    told = [*await recorded.told(), *await recorded.acknowledged_of(found)]
    known = {one.message_id for one in told} | await asyncio.to_thread(forgotten_in, directory)
    return [one for one in found if one.message_id not in known]
