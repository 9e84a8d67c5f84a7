"""Finds lost facts: compares what publishers noted as acknowledged with the ledger and the stream, and deletes old
notes.

A fact is in the stream if its message stands at its place; a sequence number alone proves nothing. Each fact is
usually looked up in the ledger once, and the stream is asked only in doubt.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.losses.journal import Noted
from noetl.kernel.stream.losses.journal_files import files_in, forget, forgotten_in, keep_only, read_lines, settling
from noetl.kernel.stream.port import EventStream, Place
from noetl.kernel.stream.write_path.written_messages import written_places
from noetl.model.stream import Scope

_LOOKED_AT: Final = 20_000
"""So many facts on their way are looked at each time; what was noted after them comes later."""

Doubtful = Callable[[Noted], bool]
Waits = Callable[[list[Noted]], None]


class _File(msgspec.Struct):
    """What is known of a file: up to where its facts are in the ledger or lost, and which are lost."""

    inode: int
    upto: int = 0
    lost: list[Noted] = msgspec.field(default_factory=list)
    settled: bool = False
    """Whether it has no lines but those of lost facts."""
    noted: int = 0
    """How many facts it noted when it was read from its start, but for those whose loss is known."""


class NoteFollowing:
    """The notes of one directory, compared with ledger and stream as often as it is asked to look."""

    def __init__(self, database: Database, stream: EventStream, directory: Path) -> None:
        self._database = database
        self._stream = stream
        self._directory = directory
        self._files: dict[Path, _File] = {}
        self._forgotten: frozenset[str] = frozenset()
        self._end: tuple[str, int] | None = None
        """Identity and last sequence of the stream, as they were seen last."""

    async def look(self) -> list[Noted]:
        """Return the facts that are lost.

        The stream is asked for every fact that is not in the ledger if it is another one or shorter than it was seen last,
        otherwise only for those that the materializer has passed, or that are not of this stream.
        """
        if not self._directory.exists():
            return []
        end = await self._extent()
        if self._end is None or end[0] != self._end[0] or end[1] < self._end[1]:
            await self._look_at_all(lambda _: None)
            return self._lost()
        self._end = end
        written = await written_places(self._database, self._stream.name)
        passed = {shard: one.sequence for shard, one in written.items() if one.created == end[0]}

        def doubtful(one: Noted) -> bool:
            return one.created != end[0] or one.sequence > end[1] or one.sequence <= passed.get(one.shard, 0)

        await self._go_through(doubtful, lambda _: None, _LOOKED_AT)
        return self._lost()

    async def look_at_all(self) -> Unwritten:
        """Return what became of all facts that are not in the ledger; the stream is asked for each of them."""
        waiting: list[Noted] = []
        if self._directory.exists():
            await self._look_at_all(waiting.extend)
        return Unwritten(self._lost(), waiting, sum(file.noted for file in self._files.values()))

    async def forget(self, lost: Sequence[Noted]) -> None:
        """Let nobody tell of these losses any more."""
        await asyncio.to_thread(forget, self._directory, lost)

    async def _look_at_all(self, waits: Waits) -> None:
        self._files.clear()
        end = await self._extent()
        await self._go_through(lambda _: True, waits)
        self._end = end

    async def _go_through(self, doubtful: Doubtful, waits: Waits, at_most: int | None = None) -> None:
        """Look at all files, and tell which facts are on their way."""
        seen = 0
        with settling(self._directory) as alone:
            paths = await asyncio.to_thread(files_in, self._directory)
            self._forgotten = await asyncio.to_thread(forgotten_in, self._directory)
            self._files = {path: self._files[path] for path in paths if path in self._files}
            for path in paths:
                try:
                    waiting = await self._go_on(path, doubtful, alone=alone)
                except FileNotFoundError:
                    # Another process saw that all of it is in the ledger.
                    self._files.pop(path, None)
                    continue
                waits(waiting)
                seen += len(waiting)
                if at_most is not None and seen > at_most:
                    break

    async def _go_on(self, path: Path, doubtful: Doubtful, *, alone: bool) -> list[Noted]:
        """Look at what is new in a file, and return those of its facts that are on their way."""
        known = self._files.get(path)
        lines = await asyncio.to_thread(read_lines, path, known.upto if known else 0)
        if known is None:
            known = self._files[path] = _File(lines.inode)
        elif lines.inode != known.inode:
            # Another process took the settled lines out.
            known = self._files[path] = _File(lines.inode)
            lines, doubtful = await asyncio.to_thread(read_lines, path, 0), lambda _: True
        if not known.upto:
            known.noted = sum(one.message_id not in self._forgotten for one in lines.noted)
        await self._look_again(known)
        lost = {one.message_id for one in known.lost}
        found = await unwritten_of(
            self._database, self._stream, [one for one in lines.noted if one.message_id not in lost], doubtful
        )
        known.lost += [one for one in found.lost if one.message_id not in self._forgotten]
        if not found.in_stream:
            known.upto = lines.upto
            if alone and not known.settled:
                known.settled = await asyncio.to_thread(keep_only, path, known.lost, lines.size)
                if known.settled and known.lost:
                    kept = await asyncio.to_thread(read_lines, path, 0)
                    known.inode, known.upto = kept.inode, kept.upto
        return found.in_stream

    async def _look_again(self, known: _File) -> None:
        """Strike out what is known to be lost, or came to the ledger after all, in whose writer's hands it was."""
        told = [one for one in known.lost if one.message_id not in self._forgotten]
        missing = await missing_of(self._database, told)
        if len(missing) < len(known.lost):
            known.lost, known.settled = missing, False

    async def _extent(self) -> tuple[str, int]:
        try:
            state = await self._stream.state()
        except NotFound:
            return "", 0
        return state.created, state.last_sequence

    def _lost(self) -> list[Noted]:
        return sorted((one for file in self._files.values() for one in file.lost), key=lambda one: one.event_id)


_KNOWN = """
SELECT e.execution_id, e.event_id FROM unnest($1::bigint[], $2::bigint[]) AS asked (execution_id, event_id)
JOIN noetl.event AS e USING (execution_id, event_id)
"""
_ASKED_TOGETHER = 5_000


class Unwritten(msgspec.Struct, frozen=True):
    """Acknowledged facts that are not in the ledger: gone, or in the stream and on their way."""

    lost: list[Noted]
    in_stream: list[Noted]
    noted: int = 0
    """How many facts were looked for, where all that a node has noted were."""


async def unwritten_of(
    database: Database,
    stream: EventStream,
    noted: Sequence[Noted],
    doubtful: Callable[[Noted], bool] = lambda _: True,
) -> Unwritten:
    """Return which of the facts are not in the ledger; the stream is asked for the doubtful ones, the others count as there."""
    missing = await missing_of(database, noted)
    asked = [one for one in missing if doubtful(one)]
    standing = await _standing(stream, [one.place for one in asked])
    # What was written and trimmed while the stream was asked is not gone.
    lost = await missing_of(database, [one for one in asked if standing.get(one.place) != one.message_id])
    gone = {one.message_id for one in lost}
    return Unwritten(lost, [one for one in missing if one.message_id not in gone])


async def missing_of(database: Database, noted: Sequence[Noted]) -> list[Noted]:
    """Return those of the facts that the ledger does not have."""
    known = await _in_ledger(database, noted)
    return [one for one in noted if (one.scope, one.execution_id, one.event_id) not in known]


async def _in_ledger(database: Database, noted: Sequence[Noted]) -> set[tuple[Scope, int, int]]:
    by_scope: dict[Scope, list[Noted]] = defaultdict(list)
    for one in noted:
        by_scope[one.scope].append(one)
    found: set[tuple[Scope, int, int]] = set()
    for scope, mine in by_scope.items():
        for start in range(0, len(mine), _ASKED_TOGETHER):
            some = mine[start : start + _ASKED_TOGETHER]
            async with database.transaction(scope) as connection:
                rows = await connection.fetch(
                    _KNOWN, [one.execution_id for one in some], [one.event_id for one in some]
                )
            found |= {(scope, row["execution_id"], row["event_id"]) for row in rows}
    return found


async def _standing(stream: EventStream, places: Sequence[Place]) -> dict[Place, str]:
    try:
        return await stream.ids_at(places) if places else {}
    except NotFound:
        return {}
