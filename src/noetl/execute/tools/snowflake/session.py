"""Sessions of Snowflake: each is a connection of a task's own, used in a thread; what is cancelled is cancelled there, too."""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import Any, Final, TypeVar

from noetl.errors import Unsupported
from noetl.execute.tools.port import Call
from noetl.execute.tools.snowflake.target import Target

_LOGIN_SECONDS: Final = 60
_CANCEL_SECONDS: Final = 15.0

Made = TypeVar("Made")


class Session:
    """One connection. Work runs on it one at a time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, work: Callable[[], Made]) -> Made:
        """Run work in a thread; when cancelled, cancel the session's statements and wait until the work has stopped."""
        done = asyncio.wrap_future(_in_thread(work))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            stopping = _in_thread(self._cancel)
            # A server that does not answer keeps the thread, not the task.
            both: list[asyncio.Future[Any]] = [done, asyncio.wrap_future(stopping)]
            await asyncio.wait(both, timeout=_CANCEL_SECONDS)
            if done.done() and not done.cancelled():
                done.exception()
            raise

    def _cancel(self) -> None:
        with suppress(Exception):
            self.connection.cursor().execute("SELECT SYSTEM$CANCEL_ALL_QUERIES(?)", [self.connection.session_id])

    async def aclose(self) -> None:
        """Log out."""
        closing = asyncio.wrap_future(_in_thread(self._close))
        await asyncio.wait([closing], timeout=_CANCEL_SECONDS)

    def _close(self) -> None:
        with suppress(Exception):
            self.connection.close(retry=False)


@asynccontextmanager
async def session_of(call: Call, target: Target, seconds: float | None) -> AsyncIterator[Session]:
    """Lend a session; its statements end by themselves when the time is over, whoever is left to wait for them."""
    limit = {} if seconds is None else {"STATEMENT_TIMEOUT_IN_SECONDS": max(1, math.ceil(seconds))}
    settings = {
        **target.settings,
        "application": "NoETL",
        "paramstyle": "qmark",
        "login_timeout": _LOGIN_SECONDS,
        "platform_detection_timeout_seconds": 0.0,
        "session_parameters": {
            "ABORT_DETACHED_QUERY": True,
            "CLIENT_TELEMETRY_ENABLED": False,
            "QUERY_TAG": f"noetl execution {call.execution_id}",
            **limit,
        },
    }
    opening = _in_thread(lambda: connector().connect(**settings))
    try:
        connection = await asyncio.shield(asyncio.wrap_future(opening))
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)
        raise
    session = Session(connection)
    try:
        yield session
    finally:
        await asyncio.shield(session.aclose())


def _in_thread(work: Callable[[], Made]) -> Future[Made]:
    """Start work in a thread that does not keep the process from ending: the connector may try for ever to reach a server."""
    told: Future[Made] = Future()

    def run() -> None:
        try:
            told.set_result(work())
        except BaseException as error:
            told.set_exception(error)

    Thread(target=run, name="noetl-snowflake", daemon=True).start()
    return told


def connector() -> Any:
    """Return the connector's module."""
    try:
        return importlib.import_module("snowflake.connector")
    except ImportError:
        raise Unsupported(
            "tasks in Snowflake need its connector, which is not installed: pip install 'noetl[snowflake]'"
        ) from None


def _close_late(opened: Future[Any]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        with suppress(Exception):
            opened.result().close(retry=False)
