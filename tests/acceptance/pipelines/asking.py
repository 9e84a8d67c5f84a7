"""Queries over the datasets of tested pipelines: a way to ask, and who asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from noetl.model.mark import Mark
from noetl.services.query.access import Asker, Readers
from noetl.services.query.audit import Asked, Audit
from noetl.services.query.duck.pool import Duck
from noetl.services.query.on_spark import OnSpark
from noetl.services.query.options import DuckOptions, Limits
from noetl.services.query.pins import Pinning
from noetl.services.query.queries import Queries
from noetl.services.query.question import Answer, Question
from noetl.spark.lake.integrity.checks import Checks
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import Row, TestedPipelines
from noetl.testing.samples.drafts import PRODUCER


class Asking:
    """Asks as somebody; an administrator unless told."""

    def __init__(self, queries: Queries, tested: TestedPipelines) -> None:
        self.queries = queries
        self.tested = tested
        runtime = tested.runtime
        self.readers = Readers(runtime.database, runtime.ledger, runtime.ids.mint_many, PRODUCER)

    async def ask(
        self,
        sql: str,
        mark: Mark | None = None,
        *,
        asker: Asker | None = None,
        of: TestedPipelines | None = None,
        **bounds: Any,
    ) -> Answer:
        """Ask a question of an organization, the first one's unless told."""
        scope = (of or self.tested).scope
        return await self.queries.ask(
            asker or Asker(scope=scope, name="tests", admin=True), Question(sql=sql, mark=mark, **bounds)
        )

    async def rows(self, sql: str, mark: Mark | None = None, **further: Any) -> list[Row]:
        """Return the rows of an answer."""
        rows: list[Row] = (await self.ask(sql, mark, **further)).table.to_pylist()
        return rows

    async def log(self, of: TestedPipelines | None = None) -> list[Asked]:
        """Return the questions of an organization, the newest first."""
        return list(await self.queries.audit.listed((of or self.tested).scope))


@asynccontextmanager
async def open_asking(
    tested: TestedPipelines, limits: Limits | None = None, spark: OnSpark | None = None, lake: str | None = None
) -> AsyncIterator[Asking]:
    """Give the way to ask for the time of the block."""
    runtime = tested.runtime
    root = lake or str(tested.home.parent / "lake")
    duck = Duck(DuckOptions(home=str(tested.home / "query"), lake_root=root, memory="256MB", threads=1))
    pinning = Pinning(runtime.database, tested.pipelines.datasets)
    audit = Audit(runtime.database, runtime.ledger, runtime.ids.mint_many, PRODUCER)
    try:
        yield Asking(
            Queries(pinning, audit, duck, Checks(Lake(root)), spark, runtime.ids.mint, limits or Limits()), tested
        )
    finally:
        await duck.close()
