"""Views in a table of the user's, as a dataset, and of a dataset: rows and barrier stand together, and are proven alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers, LakeTestbed
from tests.contracts.views.view_testbed import CITIES, SCOPE, ViewTestbed, standing

from noetl.engine.tools.postgres.target import Target, find_target
from noetl.errors import InputError, LeaseLost
from noetl.kernel.ledger.postgres.database import Database
from noetl.language.view.document import parse_view
from noetl.model.stream import Scope
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.runtime.assembly.views import ViewParts, keeping_of, open_views
from noetl.services.views.barriers import Barrier, Batch
from noetl.services.views.sinks.port import Sink
from noetl.services.views.sinks.table import TableSink
from noetl.services.views.versions import Version, ViewLease
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(400)]

TABLE = CITIES + "sink: {postgres: {credential: mine, table: public.city_notes}}\n"
DATASET = CITIES.replace("name: cities", "name: noted") + "sink: {dataset: city_notes}\n"
OF_DATASET = """
kind: View
name: largest
source: {dataset: city_notes}
sql: SELECT city, amount FROM city_notes WHERE amount = (SELECT max(amount) FROM city_notes)
keys: city
"""


class TableTestbed(ViewTestbed):
    """One process whose views are tables of the test's own database."""

    def sink(self, scope: Scope, version: Version, lease: ViewLease | None) -> Sink:
        return TableSink(self.target, self.database, scope, version.version_id, version.definition, lease)

    async def target(self) -> Target:
        return await find_target(None, {"dsn": self.database.url.replace("noetl_owner", "noetl_admin")})  # type: ignore[arg-type]


async def test_a_table_of_the_users_holds_rows_and_barrier(database: Database, spark_drivers: SharedDrivers) -> None:
    """INV-94, INV-95: also where the rows are in a database of the user's."""
    async with standing(database, AnsweringDrivers(spark_drivers), spark_drivers.options, TableTestbed) as testbed:
        await testbed.deploy(TABLE)
        for amount in range(1, 4):
            await testbed.note("rome", amount)
            await testbed.note("bonn", -amount)
        first = await testbed.caught_up("cities")
        admin = await asyncpg.connect(database.url.replace("noetl_owner", "noetl_admin"))
        try:
            assert [tuple(row) for row in await admin.fetch("SELECT * FROM public.city_notes")] == [("rome", 3, 6)]
            assert (await testbed.verified("cities")).differences == 0
            version, lease = await testbed.claimed("cities")
            sink = testbed.sink(SCOPE, version, lease)
            await sink.open()
            again = Batch(
                batch=first.batch, since=first.since, mark=first.mark, checkpoint=first.checkpoint, rows={"x": "{}"}
            )
            assert (await sink.apply(again)).batch == first.batch
            await testbed.versions.end(lease)
            with pytest.raises(LeaseLost):
                await sink.apply(again)
            await sink.close()
            await testbed.deploy(TABLE.replace("count(*) AS notes", "count(*) * 2 AS notes"))
            await testbed.caught_up("cities")
            assert [tuple(row) for row in await admin.fetch("SELECT * FROM public.city_notes")] == [("rome", 6, 6)]
            left = await admin.fetch("SELECT tablename FROM pg_tables WHERE tablename ^@ 'city_notes'")
            assert len(left) == 1
            await admin.execute("UPDATE public.noetl_view_barrier_runner SET attempt = attempt + 5")
            version, lease = await testbed.claimed("cities")
            sink = testbed.sink(SCOPE, version, lease)
            with pytest.raises(LeaseLost):
                await sink.open()
            await sink.close()
            await admin.execute("CREATE TABLE public.taken (x integer)")
            taken = await testbed.deploy(TABLE.replace("name: cities", "name: other").replace("city_notes", "taken"))
            sink = testbed.sink(SCOPE, taken, None)
            with pytest.raises(InputError, match="is no view"):
                await sink.serve()
            await sink.close()
        finally:
            await admin.close()


@pytest.fixture
async def lake_testbed(playbooks: Playbooks, task_engine: TaskEngine, spark_drivers: SharedDrivers) -> LakeTestbed:
    return LakeTestbed(playbooks, task_engine, SCOPE, spark_drivers.options.lake_root, AnsweringDrivers(spark_drivers))


@pytest.fixture
async def parts(lake_testbed: LakeTestbed, spark_drivers: SharedDrivers) -> AsyncIterator[ViewParts]:
    drivers = AnsweringDrivers(spark_drivers)
    async with open_views(lake_testbed.runtime, lake_testbed.tested.pipelines, drivers=drivers) as opened:
        yield opened


async def test_a_view_can_be_a_dataset_and_can_read_one(lake_testbed: LakeTestbed, parts: ViewParts) -> None:
    """INV-94, INV-95: each barrier is a commit; a view of the dataset follows it."""
    runtime = lake_testbed.runtime

    async def kept(name: str) -> Barrier:
        version = [one for one in await parts.versions.of(SCOPE, name) if one.status in ("building", "current")][-1]
        barrier = await keeping_of(runtime, parts).once(SCOPE, version, await runtime.ledger.head())
        assert barrier is not None
        return barrier

    async def note(city: str, amount: int) -> None:
        await runtime.ledger.append(*noted(lake_testbed, city, amount))

    await parts.versions.deploy(SCOPE, parse_view(DATASET), "tests")
    for amount in (1, 2):
        await note("rome", amount)
    await kept("noted")
    assert sorted(map(str, await lake_testbed.tested.rows("city_notes"))) == [
        str({"city": "rome", "notes": 2, "amount": 3})
    ]
    await parts.versions.deploy(SCOPE, parse_view(OF_DATASET), "tests")
    await kept("largest")
    await note("bonn", 9)
    before = await kept("noted")
    assert (await kept("noted")).batch >= before.batch
    for name, rows in (("noted", 2), ("largest", 1)):
        if name == "largest":
            await kept(name)
        found = await parts.verifying.verify(SCOPE, await parts.versions.serving(SCOPE, name), rows)
        assert (found.differences, found.rows) == (0, rows), found
    held = await parts.around.sink_of(SCOPE, await parts.versions.serving(SCOPE, "largest"), None).held()
    assert list(held.rows.values()) == [{"city": "bonn", "amount": 9}]


def noted(testbed: LakeTestbed, city: str, amount: int) -> tuple[Any, list[Any]]:
    execution_id = testbed.runtime.ids.mint()
    draft = testbed.drafts.business(f"note/{execution_id}", execution_id, meta={"city": city, "amount": amount})
    return draft.stream, [draft]
