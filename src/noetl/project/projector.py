"""The live projector: events of each shard go in after its checkpoint, rows and the moved checkpoint come out together.

It decides nothing and skips nothing. A shard whose events cannot be folded stands still, says so, and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from noetl.errors import NoetlError, Unavailable
from noetl.faults import FaultInjected
from noetl.ledger.port import Ledger
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.shard import SHARD_COUNT
from noetl.project.batch import Batches
from noetl.project.folds.registry import FoldRegistry
from noetl.project.port import Failure, ProjectionStore
from noetl.project.upcast import Upcasters
from noetl.project.waking import Listen, Listener, look_each_second

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
        ledger: Ledger,
        store: ProjectionStore,
        folds: FoldRegistry,
        upcasters: Upcasters,
        *,
        listen: Listen | None = None,
        shards: Sequence[int] | None = None,
        batch_events: int = 2_000,
        on_batch: OnBatch | None = None,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._batches = Batches(ledger, store, folds, upcasters, batch_events, on_batch)
        self._listen = listen or look_each_second
        self._shards = tuple(range(SHARD_COUNT)) if shards is None else tuple(shards)
        self._tasks: list[asyncio.Task[None]] = []
        self._wake: dict[int, asyncio.Event] = {}
        self._troubles: dict[object, str] = {}

    async def run_until(self, mark: Mark) -> None:
        """Project everything up to a mark and return; a shard that fails is recorded, and raised after the others."""
        answers = await asyncio.gather(
            *(self._attempt(shard, mark.positions[shard]) for shard in self._shards), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def start(self) -> None:
        """Begin to follow the ledger; returns when it is listening, or waiting for a database that is away."""
        if self._tasks:
            return
        self._wake = {shard: asyncio.Event() for shard in self._shards}
        running = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._hear(running), name="noetl-projector-listen"),
            *(asyncio.create_task(self._follow(shard), name=f"noetl-projector-{shard}") for shard in self._shards),
        ]
        await running.wait()
        log.info("projector runs", extra={"action": "projector.started", "shards": list(self._shards)})

    async def run(self) -> None:
        """Follow the ledger until stopped or cancelled."""
        await self.start()
        try:
            await asyncio.gather(*self._tasks)
        except asyncio.CancelledError:
            # Ours were cancelled by stop(), which is a good end; a caller's cancellation goes on to the caller.
            if self._tasks:
                raise
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop and wait until nothing runs. A batch under way is undone and will be folded again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            log.info("projector stopped", extra={"action": "projector.stopped"})

    async def _hear(self, running: asyncio.Event) -> None:
        """Pass notifications on to the shards; without a connection, try again and again."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._listen() as listener:
                    self._recovered("listening")
                    pause = FIRST_PAUSE
                    # What was appended before we listened nobody will tell us.
                    await self._look()
                    running.set()
                    await self._pass_on(listener)
            except Exception as error:
                self._troubled("listening", error)
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

    def _wake_up(self, shards: Sequence[int] | set[int]) -> None:
        for shard in shards:
            if shard in self._wake:
                self._wake[shard].set()

    async def _follow(self, shard: int) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._wake[shard].wait()
            self._wake[shard].clear()
            try:
                await self._attempt(shard, None)
            except Exception as error:
                self._troubled(shard, error)
                await asyncio.sleep(_jittered(pause))
                pause = min(pause * 2, LONGEST_PAUSE)
                self._wake[shard].set()
            else:
                self._recovered(shard)
                pause = FIRST_PAUSE

    async def _attempt(self, shard: int, upto: int | None) -> None:
        """Catch up once; what stops the shard for a reason of its own is recorded where operators look."""
        try:
            await self._batches.catch_up(shard, upto)
        except (Unavailable, FaultInjected):
            raise
        except Exception as error:
            checkpoint = (await self._store.checkpoints()).positions[shard]
            await self._store.record_failure(shard, checkpoint, _failure(error))
            raise

    def _troubled(self, what: object, error: Exception) -> None:
        """Log once per trouble, not once per try, and a database that is away once for all shards."""
        reason = f"{type(error).__name__}: {error}"
        away = isinstance(error, Unavailable)
        what, state = ("database", "away") if away else (what, reason)
        if self._troubles.get(what) == state:
            return
        self._troubles[what] = state
        known = isinstance(error, NoetlError)
        extra = {"action": "projector.waiting", "concerns": what, "reason": reason}
        log.warning("projector waits and tries again: %s", reason, extra=extra, exc_info=None if known else error)

    def _recovered(self, what: object) -> None:
        for each in ("database", what):
            if self._troubles.pop(each, None) is not None:
                log.info("projector goes on", extra={"action": "projector.recovered", "concerns": each})


def _failure(error: Exception) -> Failure:
    if isinstance(error, NoetlError):
        return Failure.of(error)
    return Failure(code="internal", message=f"{type(error).__name__}: {error}")


def _jittered(seconds: float) -> float:
    """Spread the tries of many projectors, so that a server that comes back is not run over."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
