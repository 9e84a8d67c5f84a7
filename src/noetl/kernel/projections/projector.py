"""The live projector: events of each shard go in after its checkpoint, rows and the moved checkpoint come out together.

It decides nothing and skips nothing. A stream whose fields cannot be read stands still by itself; a shard whose events cannot
be folded stands still as a whole. Both say so, and are tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress

from noetl.errors import LeaseLost, NoetlError, Unavailable
from noetl.faults import FaultInjected
from noetl.kernel.payloads.fields import Erasures, FieldsReader, nothing_erased
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.batch import Batches, Source
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.port import Failure, ProjectionStore
from noetl.kernel.projections.stream_repair import Reads, Rereads
from noetl.kernel.projections.trouble_log import Troubles
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.projections.wakeups import Listen, Listener, look_each_second
from noetl.kernel.stream.cancellation import ended
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT

log = logging.getLogger("noetl.projector")

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0


OnBatch = Callable[[int, list[Event]], Awaitable[None]]
"""Is told the shard and its events after they are committed; what it raises is logged and stops nothing."""


class Projector:
    """Keeps the projections of some shards, or of all, up to date.

    Several may work on the same shard: the store lets only one of them move a checkpoint from where it stands, so no
    event is folded in twice.
    """

    def __init__(
        self,
        ledger: Source,
        store: ProjectionStore,
        folds: FoldRegistry,
        upcasters: Upcasters,
        *,
        listen: Listen | None = None,
        shards: Collection[int] | None = None,
        batch_events: int = 5_000,
        on_batch: OnBatch | None = None,
        payloads: PayloadStore | None = None,
        erasures: Erasures = nothing_erased,
        rereads: Rereads | None = None,
    ) -> None:
        """Take the parts. Without payloads no event whose fields lie there can be projected."""
        self._ledger = ledger
        self._store = store
        fields: Reads = lambda stopped: FieldsReader(payloads, erasures, stopped=stopped)  # noqa: E731
        self._batches = Batches(ledger, store, folds, upcasters, batch_events, on_batch, fields, rereads)
        self._listen = listen or look_each_second
        self._shards = frozenset(range(SHARD_COUNT) if shards is None else shards)
        self._hearing: asyncio.Task[None] | None = None
        self._following: dict[int, asyncio.Task[None]] = {}
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._wake: dict[int, asyncio.Event] = {}
        self._troubles = Troubles()

    async def run_until(self, mark: Mark) -> None:
        """Project everything up to a mark and return; a shard that fails is recorded, and raised after the others."""
        answers = await asyncio.gather(
            *(self._attempt(shard, mark.positions[shard]) for shard in sorted(self._shards)), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def start(self) -> None:
        """Begin to follow the ledger; returns when it is listening, or waiting for a database that is away."""
        if self._hearing is not None:
            return
        running = asyncio.Event()
        self._hearing = asyncio.create_task(self._hear(running), name="noetl-projector-listen")
        self.hold(self._shards)
        await running.wait()
        log.info("projector runs", extra={"action": "projector.started", "shards": sorted(self._shards)})

    def hold(self, shards: Collection[int]) -> None:
        """Project these shards from now on; a batch of any other that is under way is undone, theirs go on."""
        self._shards = frozenset(shards)
        if self._hearing is None:
            return
        for shard in self._following.keys() - self._shards:
            leaving = self._leaving[shard] = self._following.pop(shard)
            leaving.cancel()
        for shard in sorted(self._shards - self._following.keys()):
            self._wake[shard] = asyncio.Event()
            # What a shard has that nobody tells us about was appended before we had it.
            self._wake[shard].set()
            self._following[shard] = asyncio.create_task(self._follow(shard), name=f"noetl-projector-{shard}")

    async def run(self) -> None:
        """Follow the ledger until stopped or cancelled."""
        await self.start()
        try:
            if self._hearing is not None:
                await self._hearing
        except asyncio.CancelledError:
            # Ours was cancelled by stop(), which is a good end; a caller's cancellation goes on to the caller.
            if self._hearing is not None:
                raise
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop and wait until nothing runs. A batch under way is undone and will be folded again."""
        hearing, self._hearing = self._hearing, None
        tasks = [*filter(None, [hearing]), *self._following.values(), *self._leaving.values()]
        self._following, self._leaving = {}, {}
        await ended(*tasks)
        if hearing is not None:
            log.info("projector stopped", extra={"action": "projector.stopped"})

    async def _hear(self, running: asyncio.Event) -> None:
        """Pass notifications on to the shards; without a connection, try again and again."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._listen() as listener:
                    self._troubles.over("listening")
                    pause = FIRST_PAUSE
                    # What was appended before we listened nobody will tell us.
                    await self._look()
                    running.set()
                    await self._pass_on(listener)
            except Exception as error:
                self._troubles.meet("listening", error)
            running.set()
            await asyncio.sleep(_jittered(pause))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _pass_on(self, listener: Listener) -> None:
        """Wake the shards that grew; return when looking finds what no notification told, so that we listen anew."""
        seen: Mark | None = None
        while True:
            grown = await listener.wait()
            if grown is not None:
                self._wake_up(grown)
                seen = None
                continue
            head = await self._look()
            if seen is not None and seen != head:
                return
            seen = head

    async def _look(self) -> Mark:
        """Wake the shards that are behind; an idle ledger costs two small queries, however many shards there are."""
        at, head = await self._store.checkpoints(), await self._ledger.head()
        self._wake_up([shard for shard in self._shards if at.positions[shard] < head.positions[shard]])
        return head

    def _wake_up(self, shards: Iterable[int]) -> None:
        for shard in self._shards.intersection(shards):
            if shard in self._wake:
                self._wake[shard].set()

    async def _follow(self, shard: int) -> None:
        pause, wake = FIRST_PAUSE, self._wake[shard]
        left = self._leaving.pop(shard, None)
        if left is not None:
            await asyncio.wait([left])
        while True:
            with suppress(TimeoutError):
                # Streams that stand still are tried again though nothing new comes.
                async with asyncio.timeout(self._batches.mending.seconds_left(shard)):
                    await wake.wait()
            wake.clear()
            try:
                await self._attempt(shard, None)
            except Exception as error:
                self._troubles.meet(shard, error)
                await asyncio.sleep(_jittered(pause))
                pause = min(pause * 2, LONGEST_PAUSE)
                wake.set()
            else:
                self._troubles.over(shard)
                pause = FIRST_PAUSE

    async def _attempt(self, shard: int, upto: int | None) -> None:
        """Catch up once; what stops the shard for a reason of its own is recorded where operators look."""
        try:
            await self._batches.catch_up(shard, upto)
        except (Unavailable, LeaseLost, FaultInjected):
            raise
        except Exception as error:
            checkpoint = (await self._store.checkpoints()).positions[shard]
            await self._store.record_failure(shard, checkpoint, _failure(error))
            raise


def _failure(error: Exception) -> Failure:
    if isinstance(error, NoetlError):
        return Failure.of(error)
    return Failure(code="internal", message=f"{type(error).__name__}: {error}")


def _jittered(seconds: float) -> float:
    """Spread the tries of many projectors, so that a server that comes back is not run over."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
