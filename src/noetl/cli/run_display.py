"""How a run is shown: what its ledger says and its workers report goes in, lines or a live picture come out."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.run_live import Live
from noetl.errors import NoetlError
from noetl.model.stream import execution_stream
from noetl.runtime.run import RunResult, Watcher
from noetl.runtime.service import run_event_loop, terminated_like_interrupted

if TYPE_CHECKING:
    from noetl.dispatch.engine import Engine
    from noetl.model.event import Event
    from noetl.plan.state import State
    from noetl.runtime.wiring import Runtime

LOOK_SECONDS = 0.25
TALK_SECONDS = 5.0
"""How often a loop's progress is a line of its own where there is no terminal."""
SHOWN_LINES = 40
"""Lines of a result that are shown; --json prints all of it."""


class Display(Watcher):
    """Counts, and says nothing; the other displays say what it learns."""

    def __init__(self) -> None:
        self.execution_id: int | None = None
        self.done = 0
        self.failed = 0
        self._looking: asyncio.Task[None] | None = None
        self._runtime: Runtime | None = None
        self._seen = 0
        self._entered: dict[str, datetime] = {}

    def warn(self, sentences: Sequence[str]) -> None:
        """Show what the user had better look at."""
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
        self.looked()


class Lines(Display):
    """Says in plain lines what happens, for files and pipes."""

    def __init__(self) -> None:
        super().__init__()
        self._loops: dict[str, _Loop] = {}
        self._quiet_until = time.monotonic() + TALK_SECONDS

    def entered(self, step: str, event: Event) -> None:
        """Say that a step began; of a loop, how many rows it has."""
        loop = event.meta.get("loop")
        if loop is not None:
            self._loops[step] = _Loop(loop["total"])
        many = "" if loop is None or loop["total"] is None else f", {loop['total']} rows"
        click.echo(f"{step}: entered{many}")

    def exited(self, step: str, event: Event, seconds: float) -> None:
        """Say how a step ended and how long it took."""
        loop = self._loops.pop(step, None)
        rows = "" if loop is None or not loop.done else f", {loop.done} rows"
        click.echo(f"{step}: {said_end(event)} in {seconds:.3f} s{rows}")

    def rows(self, step: str, done: int, failed: int) -> None:
        """Count rows."""
        super().rows(step, done, failed)
        if step in self._loops:
            self._loops[step].done += done + failed

    def looked(self) -> None:
        """Now and then say how far the loops are."""
        if time.monotonic() < self._quiet_until:
            return
        self._quiet_until = time.monotonic() + TALK_SECONDS
        for step, loop in self._loops.items():
            click.echo(f"{step}: {loop.sentence()}")


class _Loop:
    """How far a loop is."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.done = 0
        self._began = time.monotonic()

    def sentence(self) -> str:
        speed = self.done / max(time.monotonic() - self._began, 0.001)
        if self.total is None:
            return f"{self.done} rows, {speed:.0f} rows/s"
        left = f", about {(self.total - self.done) / speed:.0f} s left" if speed else ""
        return f"{self.done} of {self.total} rows, {speed:.0f} rows/s{left}"


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
        self._live.begin(step, None if loop is None else loop["total"], is_loop=loop is not None)

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


def finish(display: Display, work: Coroutine[Any, Any, RunResult], *, as_json: bool) -> int:
    """Run to the end, tell what came of it and return the exit code."""
    with _plain_warnings(), terminated_like_interrupted():
        try:
            result = run_event_loop(work)
        except KeyboardInterrupt:
            if display.execution_id is not None:
                click.echo(f"execution {display.execution_id} was cancelled", err=True)
            raise
    if as_json:
        click.echo(json.dumps(_facts(result, display), indent=2, ensure_ascii=False, default=str))
    else:
        _tell(result, display)
    return 0 if result.status == "COMPLETED" else 1


def _facts(result: RunResult, display: Display) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(result)
    # An id is beyond what JSON readers hold exactly as a number.
    return {**facts, "execution_id": str(result.execution_id), "rows": display.done, "rows_failed": display.failed}


def _tell(result: RunResult, display: Display) -> None:
    click.echo(f"{result.status} {result.path} version {result.version} in {result.seconds:.3f} s")
    if result.error:
        click.echo(f"error: {result.error}")
    click.echo(f"workload: {bounded(result.workload)}")
    if result.result is not None:
        click.echo(f"result: {bounded(result.result)}")
    if result.frames:
        failed = f", {display.failed} of them failed" if display.failed else ""
        click.echo(f"rows: {display.done + display.failed} in {result.frames} frames{failed}")
    own = result.execution_id
    if result.swallowed:
        were = "error was" if result.swallowed == 1 else "errors were"
        click.echo(f"{result.swallowed} {were} let pass: `noetl why {own}` tells where")
    more = f"noetl why {own}" if result.status != "COMPLETED" else f"noetl events {own}"
    click.echo(f"execution {own}: look on with `noetl executions show {own}` or `{more}`")


def bounded(value: Any) -> str:
    """Return a value as JSON for a person, cut where it gets long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 100:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    lines = [line if len(line) <= 500 else f"{line[:500]}…" for line in text.splitlines()]
    if len(lines) <= SHOWN_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:SHOWN_LINES], f"… {len(lines) - SHOWN_LINES} more lines; --json prints all"])


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show what the parts warn of as one line each, without traces."""
    handler, root = _Handler(logging.WARNING), logging.getLogger("noetl")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)
