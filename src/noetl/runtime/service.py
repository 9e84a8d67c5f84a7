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
from typing import Any, TypeVar

from noetl.errors import NoetlError
from noetl.runtime.wiring import Runtime

_log = logging.getLogger(__name__)

T = TypeVar("T")
STOPPING = (signal.SIGTERM, signal.SIGINT)

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


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, so that what was begun is ended in the ledger too."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def log_to_stderr() -> None:
    """Let a role say what it does where its operator looks."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("noetl")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class Stopping:
    """What a role may look at and do about its own end."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.because: str | None = None

    def ask(self, because: str) -> None:
        """End the role in the ordinary way."""
        self.because = self.because or because
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether the role is to end."""
        return self._asked.is_set()

    async def wait(self) -> None:
        """Return once the role is to end."""
        await self._asked.wait()


async def serve_until_stopped(
    start: Callable[[Stopping], AbstractAsyncContextManager[object]], *, tell: Callable[[str], None]
) -> bool:
    """Enter a role, stay until a signal or the role itself asks for the end, and leave it; tell whether it was left whole.

    False means that a signal cut short what was under way. `tell` gets a sentence whenever a signal arrives.
    """
    stopping = Stopping()
    stands = cut = False

    async def serve() -> None:
        nonlocal stands
        async with start(stopping):
            stands = True
            await stopping.wait()

    running = asyncio.get_running_loop().create_task(serve(), name="noetl-role")

    def on_signal(received: signal.Signals) -> None:
        nonlocal cut
        if stands and not stopping.asked:
            tell(f"{received.name}: finishing what is under way; once more stops at once")
            stopping.ask(received.name)
            return
        tell(f"{received.name}: stopping at once")
        cut = True
        running.cancel()

    with _signals(on_signal):
        try:
            await running
        except asyncio.CancelledError:
            if not cut:
                raise
    return not cut


@contextmanager
def _signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for one in STOPPING:
        loop.add_signal_handler(one, handle, one)
    try:
        yield
    finally:
        for one in STOPPING:
            loop.remove_signal_handler(one)


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
        with suppress(asyncio.CancelledError):
            await beating
        with suppress(NoetlError):
            async with runtime.database.transaction(runtime.scope) as connection:
                await connection.execute(_GONE, worker_id)
