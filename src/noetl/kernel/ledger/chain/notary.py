"""The notary: builds the tree of each shard from its links and signs heads, outside every append.

It never signs what does not follow from the head it signed before: it reports a rewritten ledger. Heads are also
written to a file, one line of JSON each, append-only; a copy on another machine makes later changes of this one
visible.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Final

from noetl.errors import Corrupt, NoetlError, Unavailable
from noetl.kernel.ledger.chain.heads import Head, Signer, is_signed_by, read_heads
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.chain.tree_growth import grown
from noetl.model.event import time_text
from noetl.model.stream import SHARD_COUNT

Publish = Callable[[Head], Awaitable[None]]
_log = logging.getLogger(__name__)


class Notary:
    """Signs the heads of one ledger. `published` are the newest heads that stand elsewhere."""

    def __init__(
        self,
        trees: Trees,
        signer: Signer,
        publish: Publish,
        published: Mapping[int, Head],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._trees = trees
        self._signer = signer
        self._publish = publish
        self._published = dict(published)
        self._now = now
        self.refused: dict[int, NoetlError] = {}
        """Why the last round signed no head of a shard."""

    async def round(self) -> list[Head]:
        """Sign and publish a head of every shard that grew; one that cannot be signed is told at the end, and stops no other."""
        ledger = await self._trees.ledger()
        refused, found = dict[int, NoetlError](), list[Head]()
        for shard in range(SHARD_COUNT):
            try:
                head = await self._shard(ledger, shard)
            except Unavailable:
                # The database or the place of heads is away, for every shard alike. What was known stays known.
                self.refused |= refused
                raise
            except NoetlError as problem:
                refused[shard] = problem
            except Exception as problem:  # Whatever stands in the rows of one shard is that shard's alone.
                refused[shard] = Corrupt(f"no head of shard {shard} is signed: {type(problem).__name__}: {problem}")
            else:
                if head is not None:
                    found.append(head)
        self.refused = refused
        if refused:
            first, *others = refused.values()
            for other in others:
                _log.error("heads of the ledger are not signed: %s", other.message)
            raise first
        return found

    async def _shard(self, ledger: str, shard: int) -> Head | None:
        first = (await self._trees.links.chained_from())[shard]
        recorded, known = await self._trees.newest(shard), self._published.get(shard)
        before = [head for head in (recorded, known) if head is not None]
        for head in before:
            self._believe(head, ledger, shard, first)
        tree, link = await grown(self._trees, shard, first, before)
        if not tree.size:
            return None
        if any(head.size == tree.size for head in before):
            if recorded is not None and (known is None or known.size < recorded.size):
                # Signed by another notary, or by this one before it could tell anybody.
                await self._tell(recorded)
            return None
        head = self._signer.sign(
            Head(
                ledger=ledger,
                shard=shard,
                first_position=first,
                size=tree.size,
                root=tree.root().hex(),
                link=link.hex(),
                signed_at=time_text(self._now()),
                key="",
            )
        )
        await self._trees.sign(head)
        await self._tell(head)
        return head

    def _believe(self, head: Head, ledger: str, shard: int, first: int) -> None:
        """Refuse a head that was not signed here, or not as one of this shard."""
        if not any(is_signed_by(head, public) for public in self._signer.trusted()):
            raise Corrupt(
                f"a head over {head.size} events of shard {shard} is not signed by the notary's key: somebody put it there",
                hint="`noetl verify --all` names what differs; docs/proofs.md says how a key is changed",
            )
        if (head.ledger, head.shard, head.first_position) != (ledger, shard, first):
            raise Corrupt(
                f"a head over {head.size} events stands for shard {shard} of ledger {ledger} from position {first} on,"
                f" and was signed for shard {head.shard} of {head.ledger} from {head.first_position} on"
            )

    async def _tell(self, head: Head) -> None:
        await self._publish(head)
        self._published[head.shard] = head


_TAIL: Final = 4096
"""Bytes in which the last whole line ends: a head has some 500."""


class HeadFile:
    """The published heads of one ledger."""

    def __init__(self, directory: Path, ledger: str) -> None:
        self.path = directory / f"{ledger}.jsonl"

    async def publish(self, head: Head) -> None:
        """Add a head; it is on disk when this returns."""
        await asyncio.to_thread(self._add, head.line().encode() + b"\n")

    def heads(self) -> list[Head]:
        """Return all heads, oldest first; none if there is no file."""
        try:
            return read_heads(self.path.read_text())
        except FileNotFoundError:
            return []

    def newest(self) -> dict[int, Head]:
        """Return the largest head of each shard."""
        return {head.shard: head for head in sorted(self.heads(), key=lambda head: head.size)}

    def _add(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _add_whole(file, line)
        except OSError as problem:
            raise Unavailable(f"a signed head cannot be written to {self.path}: {problem.strerror}") from problem


def _add_whole(file: FileIO, line: bytes) -> None:
    """Add a line or nothing. A disk that fills up, or a machine that goes down, may have left a part of one before."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    tail = file.read()
    whole = size - len(tail) + tail.rfind(b"\n") + 1
    file.truncate(whole)
    file.seek(whole)
    if file.write(line) != len(line):
        file.truncate(whole)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())
