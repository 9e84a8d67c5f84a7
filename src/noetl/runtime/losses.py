"""What this process says of acknowledged facts that are not in the ledger: those a stream lost, and those in it alone.

While it runs it follows the notes of its node, tells of losses when they happen, and lets notes go that nobody needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from noetl.errors import NoetlError, NotFound, Unavailable
from noetl.runtime.settings import Settings
from noetl.runtime.streams import mirrors, open_stream
from noetl.runtime.wiring import Runtime
from noetl.stream.ended import ended
from noetl.stream.journal import Noted
from noetl.stream.loss import Unwritten, missing_of
from noetl.stream.note_following import NoteFollowing
from noetl.stream.noted_files import noted_in
from noetl.stream.port import EventStream
from noetl.stream.unread import still_unread, unread

_log = logging.getLogger(__name__)

NAMED: Final = 20
"""So many events are named in a line of the log."""
LOOK_SECONDS: Final = 5.0
"""How often a process that runs looks at the notes of its node."""
_BRING_THEM = "start a process with its connection to NATS, which writes them"


def journal_directory(settings: Settings) -> Path:
    """Return where processes of this node note which facts the stream acknowledged."""
    return settings.runtime.home / "run" / "published"


async def unwritten_facts(runtime: Runtime, writes: EventStream) -> Unwritten:
    """Return what became of the facts that processes of this node published; the stream is asked for each."""
    return await _notes(runtime, writes).look_at_all()


async def forget_lost(runtime: Runtime, writes: EventStream) -> Unwritten:
    """Return the same, and let nobody tell of what is lost now any more."""
    notes = _notes(runtime, writes)
    found = await notes.look_at_all()
    if found.lost:
        await notes.forget(found.lost)
        # Notes that nobody needs any more go at once, as far as no process writes their files.
        await notes.look_at_all()
    return found


def _notes(runtime: Runtime, writes: EventStream) -> NoteFollowing:
    return NoteFollowing(runtime.database, writes, journal_directory(runtime.settings))


@asynccontextmanager
async def telling_losses(
    runtime: Runtime, writes: EventStream, lost: Callable[[int], None] = lambda facts: None
) -> AsyncIterator[None]:
    """Tell which facts a stream lost, at once and as soon as it happens during the block; `lost` gets how many there are."""
    telling = _Telling(_notes(runtime, writes), lost)
    await telling.try_to_look()
    task = asyncio.get_running_loop().create_task(telling.go_on(), name="noetl-losses")
    try:
        yield
    finally:
        await ended(task)


class _Telling:
    def __init__(self, notes: NoteFollowing, lost: Callable[[int], None]) -> None:
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
            found = await self._notes.look()
        except (NoetlError, OSError):
            _log.debug("the notes of acknowledged facts could not be compared", exc_info=True)
            return
        self._lost(len(found))
        new = [one for one in found if one.message_id not in self._told]
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
            "from; set event_store.distribution_backend to nats-jetstream, with its connection.url", missing,
        )  # fmt: skip


async def not_in_the_ledger(runtime: Runtime, seconds: float) -> list[str]:
    """Say what was acknowledged and is not in the ledger, after waiting a while for what is on its way."""
    if not mirrors(runtime.settings):
        missing = await _noted_missing(runtime)
        return [f"{missing} acknowledged facts are not in the ledger: {_BRING_THEM}"] if missing else []
    async with open_stream(runtime.settings, runtime.database, "writes") as writes:
        try:
            return await _said(runtime, writes, seconds)
        except NotFound:
            missing = await _noted_missing(runtime)
            return [f"{missing} acknowledged facts are gone with their stream"] if missing else []
        except Unavailable as problem:
            _log.warning("whether every acknowledged fact is in the ledger is not known: %s", problem.message)
            missing = await _noted_missing(runtime)
            return [f"{missing} acknowledged facts are not in the ledger"] if missing else []


async def _said(runtime: Runtime, writes: EventStream, seconds: float) -> list[str]:
    await writes.state()
    left = await still_unread(runtime.database, writes, await unread(runtime.database, writes), seconds)
    found = await unwritten_facts(runtime, writes)
    said = []
    if left:
        shards = ", ".join(str(place.shard) for place in sorted(left))
        said.append(
            f"the stream {writes.name} has acknowledged messages of shards {shards} that are not in the ledger: {_BRING_THEM}"
        )
    if found.lost:
        said.append(f"{len(found.lost)} acknowledged facts are gone; `noetl stream lost` names them")
    return said


async def _noted_missing(runtime: Runtime) -> int:
    files = noted_in(journal_directory(runtime.settings))
    return sum([len(await missing_of(runtime.database, noted)) for noted in files])
