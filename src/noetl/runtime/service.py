"""How long-running roles start and stop: a role goes in as a context, and runs until it is told to end.

The first SIGTERM or SIGINT drains: the context is left in the ordinary way, so what is under way is finished. The second
one stops at once. A role never ends because PostgreSQL is away for a while: its parts try again by themselves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar, cast

from noetl.errors import NoetlError
from noetl.runtime.wiring import Runtime

_log = logging.getLogger(__name__)

T = TypeVar("T")
STOPPING = (signal.SIGTERM, signal.SIGINT)
INSIST_SECONDS = 1.0

_HERE = """
INSERT INTO noetl.worker (tenant_id, organization_id, worker_id, pool, slots, labels)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb)
ON CONFLICT (tenant_id, organization_id, worker_id) DO UPDATE SET last_heartbeat = now(), slots = excluded.slots
"""
_GONE = "DELETE FROM noetl.worker WHERE worker_id = $1"


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the quickest event loop there is."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None  # where it does not exist, the standard one does the same more slowly
    return uvloop.new_event_loop


def run_interruptibly(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM does what Ctrl-C does: it cancels, waits for the end of that, and is a KeyboardInterrupt."""
    interrupted = False

    async def guarded() -> T | None:
        running = asyncio.current_task()
        assert running is not None

        def on_signal(_: signal.Signals) -> None:
            nonlocal interrupted
            interrupted = True
            running.cancel()

        with _signals(on_signal):
            try:
                return await main
            except asyncio.CancelledError:
                if not interrupted:
                    raise
                running.uncancel()
                return None

    result = run_event_loop(guarded())
    if interrupted and result is None:
        raise KeyboardInterrupt
    return cast("T", result)


def run_role(start: Role, tell: Callable[[str], None]) -> int:
    """Run a role until it is told to stop, with its log on stderr, and return the exit code."""
    handler, root = logging.StreamHandler(sys.stderr), logging.getLogger("noetl")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        return 0 if run_event_loop(serve_until_stopped(start, tell=tell)) else 1
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


class Stopping:
    """What a role may look at and do about its own end."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.broken = False
        """Whether the role ends because a part of it did."""
        self.idle = False
        """Whether nothing is under way yet that the first signal could cut short."""

    def ask(self) -> None:
        """End the role in the ordinary way."""
        self._asked.set()

    @contextmanager
    def nothing_begun(self) -> Iterator[None]:
        """Let the first signal end the role at once while the block runs, as whole as after its work."""
        self.idle = True
        try:
            yield
        finally:
            self.idle = False

    def give_up(self) -> None:
        """End the role because a part of it is broken."""
        self.broken = True
        self.ask()

    @property
    def asked(self) -> bool:
        """Whether the role is to end."""
        return self._asked.is_set()

    async def wait(self) -> None:
        """Return once the role is to end."""
        await self._asked.wait()


Role = Callable[[Stopping], AbstractAsyncContextManager[object]]
"""What starts a role: entering the context starts it, leaving it drains it."""


async def serve_until_stopped(start: Role, *, tell: Callable[[str], None]) -> bool:
    """Enter a role, stay until a signal asks for its end, and leave it; tell whether it was left whole.

    False means that a signal cut short what was under way, or that a part of the role ended by itself. `tell` gets a
    sentence whenever a signal arrives.
    """
    stopping = Stopping()
    stands = cut = whole = False

    async def serve() -> None:
        nonlocal stands
        async with start(stopping):
            stands = True
            await stopping.wait()

    loop = asyncio.get_running_loop()
    running = loop.create_task(serve(), name="noetl-role")

    def on_signal(received: signal.Signals) -> None:
        nonlocal cut, whole
        # What is wanted is done before it is told: whoever listened may be gone.
        if stands and not stopping.asked:
            stopping.ask()
            tell(f"{received.name}: finishing what is under way; once more stops at once")
            return
        whole = whole or stopping.idle
        if not cut:
            cut = True
            insist()
        tell(f"{received.name}: stopping at once")

    def insist() -> None:
        # A part may take the first cancellation for the order to drain.
        if not running.done():
            running.cancel()
            loop.call_later(INSIST_SECONDS, insist)

    with _signals(on_signal):
        try:
            await running
        except asyncio.CancelledError:
            if not cut:
                raise
    return (whole or not cut) and not stopping.broken


@contextmanager
def _signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # What the parent process lets us ignore, as shells do for Ctrl-C in the background, stays ignored.
    before = {one: known for one in STOPPING if (known := signal.getsignal(one)) is not signal.SIG_IGN}
    for one in before:
        loop.add_signal_handler(one, handle, one)
    try:
        yield
    finally:
        for one, known in before.items():
            loop.remove_signal_handler(one)
            signal.signal(one, known)


@asynccontextmanager
async def registered(
    runtime: Runtime, worker_id: str, *, slots: int, every_seconds: float, pool: str = "default"
) -> AsyncIterator[None]:
    """Show a worker in the table of workers for the time of the block. Nothing relies on it, so nothing fails for it."""
    labels = json.dumps({"node": runtime.settings.runtime.node_id})

    async def here() -> None:
        own = runtime.scope
        async with runtime.database.transaction(own) as connection:
            await connection.execute(_HERE, own.tenant_id, own.organization_id, worker_id, pool, slots, labels)

    async def beat() -> None:
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await here()
            except NoetlError as problem:
                _log.warning("the worker could not say that it is there: %s", problem.message)

    await here()
    beating = asyncio.get_running_loop().create_task(beat(), name="noetl-worker-row")
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        with suppress(NoetlError):
            async with runtime.database.transaction(runtime.scope) as connection:
                await connection.execute(_GONE, worker_id)


def ended_early(part: asyncio.Task[None], stopping: Stopping, name: str) -> None:
    """Let a role end when one of its parts ends by itself: half a role would look alive and do nothing."""

    def ended(done: asyncio.Task[None]) -> None:
        if done.cancelled() or stopping.asked:
            return
        _log.error("%s ended by itself", name, exc_info=done.exception())
        stopping.give_up()

    part.add_done_callback(ended)
