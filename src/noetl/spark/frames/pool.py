"""The Spark of a worker of playbooks: sends stages and queries to its driver, which is started by the first of them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.reports.commands import errand_of
from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.spark import Table
from noetl.engine.worker.services import LanesEnd
from noetl.errors import InputError, LeaseLost, OutsideUnavailable, Unavailable
from noetl.model.stream import Scope
from noetl.spark.drivers.pool import Drivers
from noetl.spark.drivers.process import Driver
from noetl.spark.drivers.protocol import Rows, RunFrames, RunQuery

_REFUSED: Final = "input_invalid"


class FramePool:
    """Runs lanes and queries on Spark; `close` ends the drivers that were started."""

    def __init__(self, scope: Scope, reach: Mapping[str, Any], make: Callable[[], Drivers]) -> None:
        self._owner = f"{scope.tenant_id}/{scope.organization_id}"
        self._reach = dict(reach)
        self._make = make
        self._drivers: Drivers | None = None
        self._closed = False

    async def work(self, grant: CommandGrant, worker: str, started: Callable[[str, str], Awaitable[None]]) -> LanesEnd:
        """Work off the frames of a command in lanes; when cancelled, the Spark job is interrupted by its tag."""
        assert grant.loop is not None
        errand = RunFrames(
            id=errand_of(grant),
            attempt=grant.attempt,
            organization=self._owner,
            reach=self._reach,
            lanes=grant.loop.frame["lanes"],
            grant=msgspec.msgpack.encode(grant),
            worker=worker,
        )
        drivers = self._opened()
        if grant.left is not None:
            await drivers.interrupt_left(*grant.left, self._owner)
        async with self._driver() as driver:
            await started(driver.application_id, errand.tag)
            result = await driver.do(errand)
        if result.status == "ok":
            return _together(grant.step, result.metrics["endings"])
        message = f"step {grant.step}: the Spark job of its frames ended: {result.error}"
        if result.status == "interrupted":
            raise Unavailable(message)
        if result.retryable:
            # Rows that end their executors would otherwise be tried for ever.
            raise OutsideUnavailable(message)
        return LanesEnd(problem=Problem(kind="unknown", message=message, code=result.error_kind or "spark_error"))

    async def query(
        self, tables: Mapping[str, Table], *, sql: str | None, code: str | None, values: dict[str, Any], most: int
    ) -> bytes:
        """Run SQL or code over tables and return the rows as an Arrow stream."""
        errand = RunQuery(
            id=f"query-{uuid.uuid4()}",
            attempt=1,
            organization=self._owner,
            reach=self._reach,
            tables={name: Rows(refs=table.refs, lines=table.lines) for name, table in tables.items()},
            sql=sql,
            code=code,
            values=values,
            most=most,
        )
        async with self._driver() as driver:
            result = await driver.do(errand)
        if result.status == "ok":
            table: bytes = result.metrics["table"]
            return table
        message = result.error or "the Spark job ended without a word"
        raise InputError(message) if result.error_kind == _REFUSED else OutsideUnavailable(message)

    async def close(self) -> None:
        """End what was started."""
        self._closed = True
        if self._drivers is not None:
            await self._drivers.close()

    @asynccontextmanager
    async def _driver(self) -> AsyncIterator[Driver]:
        """Hold a driver; a Spark that does not start is told like a server of the user's that does not answer."""
        async with AsyncExitStack() as stack:
            try:
                driver = await stack.enter_async_context(self._opened().for_("", b"", self._owner))
            except Unavailable as away:
                if self._closed:
                    raise  # the worker goes, and Spark with it
                raise OutsideUnavailable(away.message, hint=away.hint) from None
            yield driver

    def _opened(self) -> Drivers:
        if self._drivers is None:
            self._drivers = self._make()
        return self._drivers


def _together(step: str, endings: list[dict[str, Any]]) -> LanesEnd:
    """Say what all lanes came to; one that lost its command, or may do better again, decides for all."""
    if any(end.get("lost") for end in endings):
        raise LeaseLost(f"step {step}: its command is somebody else's now")
    again = [end for end in endings if end.get("again")]
    if again:
        # What is not the platform's counts, also where the platform was away from another lane.
        first = next((end for end in again if end.get("counts")), again[0])
        raise (OutsideUnavailable if first.get("counts") else Unavailable)(str(first["again"]))
    problem = next((end["problem"] for end in endings if end.get("problem")), None)
    return LanesEnd(
        rows_done=sum(end.get("rows_done", 0) for end in endings),
        rows_failed=sum(end.get("rows_failed", 0) for end in endings),
        claims=sum(end.get("claims", 0) for end in endings),
        problem=None if problem is None else msgspec.convert(problem, Problem),
    )
