"""Groups a view's fact on Spark, over the data source of the ledger, for ledgers too large for one query."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final, Protocol

from noetl.errors import Unavailable
from noetl.kernel.ledger.port import LedgerReader
from noetl.kernel.payloads.codec import decode_table
from noetl.model.event import time_text
from noetl.model.mark import Mark
from noetl.services.curated.grouping import SPARK, columns_of, grouped
from noetl.services.curated.redaction import Contribution
from noetl.services.curated.view import CuratedView
from noetl.spark.drivers.protocol import RunProgram, WorkResult

_OWNER: Final = "noetl/operators"
"""Whose fair share of Spark the work uses: no organization's."""


class Driving(Protocol):
    """A driver as it is held."""

    async def do(self, errand: RunProgram) -> WorkResult:
        """Do one errand and return its result."""
        ...


class SparkDrivers(Protocol):
    """What hands out Spark drivers."""

    def for_(self, code_digest: str, bundle: bytes, organization: str) -> AbstractAsyncContextManager[Driving]:
        """Hold a driver."""
        ...


class OnSparkDrivers:
    """The engine for large ledgers; archived partitions are not read."""

    def __init__(self, drivers: SparkDrivers, ledger: LedgerReader, reach: Mapping[str, Any], seconds: float) -> None:
        self._drivers = drivers
        self._ledger = ledger
        self._reach = dict(reach)
        self._seconds = seconds

    async def contributions(self, view: CuratedView, since: datetime) -> tuple[Mark, list[Contribution]]:
        """Return what each organization adds to each group, and the mark up to which events were read."""
        mark = await self._ledger.head()
        asked = RunProgram(
            id=f"curated-{view.name}-{mark.token()}",
            attempt=1,
            organization=_OWNER,
            reach=self._reach,
            program="noetl.spark.curated:groups",
            arguments={
                "sql": grouped(view, SPARK, since),
                "types": list(view.fact.types),
                "columns": list(columns_of(view)),
                "mark": mark.token(),
                "since": time_text(since),
            },
        )
        async with self._drivers.for_("", b"", _OWNER) as driver:
            try:
                # The start of Spark is not the view's fault, so its time begins here.
                async with asyncio.timeout(self._seconds):
                    result = await driver.do(asked)
            except TimeoutError:
                raise Unavailable(
                    f"curated view {view.name} took longer than {self._seconds:g} seconds on Spark",
                    hint="allow more with curated.timeout_seconds",
                ) from None
        if result.status != "ok":
            raise Unavailable(f"Spark could not compute curated view {view.name}: {result.error}", hint="read it again")
        table = decode_table(result.metrics["table"])
        keys = [name for name in table.column_names if name.startswith("k")]
        sums = [name for name in table.column_names if name.startswith("s")]
        return mark, [
            Contribution(
                row["tenant_id"],
                row["organization_id"],
                tuple(row[name] for name in keys),
                row["n"],
                tuple(row[name] for name in sums),
            )
            for row in table.to_pylist()
        ]
