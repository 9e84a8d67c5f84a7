"""How a run is shown: what its ledger says and its workers report goes in, lines or a live picture come out."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import click

from noetl.cli.run.live import Live
from noetl.errors import NoetlError
from noetl.model.stream import execution_stream
from noetl.runtime.commands.run import Watcher

if TYPE_CHECKING:
    from noetl.engine.dispatch.engine import Engine
    from noetl.engine.plan.state import State
    from noetl.model.event import Event
    from noetl.runtime.wiring import Runtime

LOOK_SECONDS = 0.25
TALK_SECONDS = 5.0
"""How often a loop's progress is a line of its own where there is no terminal."""


class Display(Watcher):
    """Counts, and says nothing; the other displays say what it learns."""

    def __init__(self) -> None:
        self.execution_id: int | None = None
        self.warnings: list[str] = []
        self.done = 0
        self.failed = 0
        self._looking: asyncio.Task[None] | None = None
        self._runtime: Runtime | None = None
        self._seen = 0
        self._entered: dict[str, datetime] = {}
        self.of_step: Counter[str] = Counter()
        """Rows of each step since it was entered."""

    def warn(self, sentences: Sequence[str]) -> None:
        """Show what the user had better look at."""
        self.warnings += sentences
        for sentence in sentences:
            click.echo(f"warning: {sentence}", err=True)

    def started(self, runtime: Runtime, engine: Engine, state: State) -> None:
        """Begin to follow the execution."""
        self.execution_id = state.execution_id
        self._runtime = runtime
        self._looking = asyncio.get_running_loop().create_task(self._follow(), name="noetl-run-display")

    def rows(self, step: str, done: int, failed: int) -> None:
        """Count rows that were worked off."""
        self.done += done
        self.failed += failed
        self.of_step[step] += done + failed

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Show the run for the time of the block, and at its end what is not shown yet."""
        with self.shown():
            try:
                yield
                await self._stop()
                await self._read()
            finally:
                await self._stop()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Hold the terminal for the time of the block."""
        yield

    def entered(self, step: str, event: Event) -> None:
        """A step began."""

    def exited(self, step: str, event: Event, seconds: float) -> None:
        """A step ended."""

    def looked(self) -> None:
        """All that is known so far was told."""

    async def _follow(self) -> None:
        while True:
            with suppress(NoetlError):  # the run itself meets the same trouble and tells of it
                await self._read()
            await asyncio.sleep(LOOK_SECONDS)

    async def _stop(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _read(self) -> None:
        runtime = self._runtime
        if runtime is None or self.execution_id is None:
            return
        async for event in runtime.ledger.read(execution_stream(runtime.scope, self.execution_id), self._seen + 1):
            self._seen = event.stream_version
            step = event.node_name or ""
            if event.event_type == "step.entered":
                self._entered[step] = event.event_time
                self.entered(step, event)
            elif event.event_type in ("step.exited", "step.skipped"):
                began = self._entered.pop(step, event.event_time)
                self.exited(step, event, (event.event_time - began).total_seconds())
                self.of_step.pop(step, None)
        self.looked()


class Lines(Display):
    """Says in plain lines what happens, for files and pipes."""

    def __init__(self) -> None:
        super().__init__()
        self._loops: dict[str, tuple[float, int | None]] = {}
        self._quiet_until = time.monotonic() + TALK_SECONDS

    def entered(self, step: str, event: Event) -> None:
        """Say that a step began; of a loop, how many rows it has."""
        loop = event.meta.get("loop")
        if loop is not None:
            self._loops[step] = (time.monotonic(), loop["total"])
        many = "" if loop is None or loop["total"] is None else f", {loop['total']} rows"
        click.echo(f"{step}: entered{many}")

    def exited(self, step: str, event: Event, seconds: float) -> None:
        """Say how a step ended and how long it took."""
        rows = f", {self.of_step[step]} rows" if self._loops.pop(step, None) else ""
        click.echo(f"{step}: {said_end(event)} in {seconds:.3f} s{rows}")

    def looked(self) -> None:
        """Now and then say how far the loops are."""
        if time.monotonic() < self._quiet_until:
            return
        self._quiet_until = time.monotonic() + TALK_SECONDS
        for step, (began, total) in self._loops.items():
            click.echo(f"{step}: {progress(self.of_step[step], total, time.monotonic() - began)}")


def progress(done: int, total: int | None, seconds: float) -> str:
    """Say how far a loop is, how quick, and when it will be done."""
    speed = done / max(seconds, 0.001)
    if total is None:
        return f"{done} rows, {speed:.0f} rows/s"
    left = f", about {(total - done) / speed:.0f} s left" if speed else ""
    return f"{done} of {total} rows, {speed:.0f} rows/s{left}"


class Picture(Display):
    """Shows a live picture on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._live = Live()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Hold the terminal."""
        with self._live.shown():
            yield

    def entered(self, step: str, event: Event) -> None:
        """Show the step as under way."""
        loop = event.meta.get("loop")
        total = None if loop is None else loop["total"]
        self._live.begin(step, total, is_loop=loop is not None, done=self.of_step[step])

    def exited(self, step: str, event: Event, seconds: float) -> None:
        """Move the step to those that ended."""
        self._live.end(step, said_end(event), seconds)

    def rows(self, step: str, done: int, failed: int) -> None:
        """Move a loop's bar."""
        super().rows(step, done, failed)
        self._live.advance(step, done + failed)


def said_end(event: Event) -> str:
    """Say how a step ended, in a word and with its reason."""
    if event.event_type == "step.skipped":
        return "skipped"
    if event.status != "failed":
        return "done"
    return f"failed ({event.error})" if event.error else "failed"


def display_for(*, as_json: bool, quiet: bool) -> Display:
    """Choose how a run is shown."""
    if as_json or quiet:
        return Display()
    return Picture() if sys.stdout.isatty() else Lines()
