"""The Spark engine: a checked SELECT over pinned files runs in a driver process of the organization, under a tag of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pyarrow as pa

from noetl.errors import Damaged, InputError, Unavailable
from noetl.kernel.payloads.codec import decode_table
from noetl.model.stream import Scope
from noetl.services.query.errors import QueryFailed, QueryTimedOut
from noetl.spark.drivers.process import LOST
from noetl.spark.drivers.protocol import Relation, RunSelect, WorkResult
from noetl.spark.lake.integrity.read_errors import REMEDY


class Driving(Protocol):
    """A driver as it is held."""

    async def do(self, errand: RunSelect) -> WorkResult:
        """Do one errand and return its result."""
        ...


class SparkDrivers(Protocol):
    """What hands out Spark drivers."""

    def for_(self, code_digest: str, bundle: bytes, organization: str) -> AbstractAsyncContextManager[Driving]:
        """Hold a driver."""
        ...


class OnSpark:
    """Runs queries in Spark drivers that serve no code of anybody."""

    def __init__(self, drivers: SparkDrivers) -> None:
        self._drivers = drivers

    async def answer(
        self, scope: Scope, query_id: int, relations: Sequence[Relation], sql: str, seconds: float
    ) -> pa.Table:
        """Run a query over these relations and return its rows; one that takes too long is interrupted by its tag."""
        owner = f"{scope.tenant_id}/{scope.organization_id}"
        asked = RunSelect(
            id=f"query-{query_id}", attempt=1, organization=owner, reach={}, relations=tuple(relations), sql=sql
        )
        async with self._drivers.for_("", b"", owner) as driver:
            try:
                # The start of Spark is not the query's fault, so its time begins here.
                async with asyncio.timeout(seconds):
                    result = await driver.do(asked)
            except TimeoutError:
                raise QueryTimedOut(
                    f"the query took longer than {seconds:g} seconds and was stopped",
                    hint="read fewer rows, or allow more time",
                ) from None
        if result.status == "ok":
            return decode_table(result.metrics["table"])
        if result.error_kind == LOST:
            raise Unavailable("the Spark driver ended while the query ran", hint="ask again, with less to do at once")
        if result.error_kind == Damaged.code:
            raise Damaged(result.error, hint=REMEDY)
        if result.error_kind == Unavailable.code:
            raise Unavailable(result.error or "the lake does not answer", hint="ask again")
        if result.error_kind == InputError.code:
            raise QueryFailed(result.error)
        raise QueryFailed(f"Spark could not run the query: {result.error}")
