"""The event lake is the ledger, on local Spark and on a cluster: followed, upgraded, put together, dropped, built anew."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers, LakeTestbed, fresh_scope

from noetl.errors import Conflict, InputError, NotFound
from noetl.model.mark import Mark
from noetl.model.stream import execution_stream
from noetl.model.task import PartitionWrite
from noetl.pipelines.tables.column_types import schema_of
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.spark.event_lake.definition import EVENT_COLUMNS, LINEAGE_COLUMNS, PLACE_COLUMNS
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600)]


@pytest.fixture
async def testbed(
    playbooks: Playbooks, task_engine: TaskEngine, any_drivers: SharedDrivers
) -> AsyncIterator[LakeTestbed]:
    """An organization with a lake to be."""
    root = any_drivers.options.lake_root
    made = LakeTestbed(playbooks, task_engine, fresh_scope("acme"), root, AnsweringDrivers(any_drivers))
    async with made.streamed.open():
        yield made


async def test_the_lake_is_the_ledger(
    testbed: LakeTestbed, playbooks: Playbooks, task_engine: TaskEngine, any_drivers: SharedDrivers
) -> None:
    """INV-87, INV-88, INV-89, INV-90, INV-91."""
    root = any_drivers.options.lake_root
    other = LakeTestbed(playbooks, task_engine, fresh_scope("other"), root, AnsweringDrivers(any_drivers))
    with pytest.raises(NotFound, match="no event lake"):
        await testbed.lake.verify()
    await asyncio.gather(testbed.write(6), other.write(6), testbed.note(1, 3))
    first = await testbed.lake.sync()
    assert first["batches"] == 1
    assert await testbed.lake.sync() == {"batches": 0, "rows": 0, "mark": first["mark"]}, "its own commits are no news"

    await _follow_slow_commits(testbed, other)
    compared = await testbed.lake.verify()
    assert compared["equal"], compared["difference"]
    assert compared["ledger"]["rows"] > first["rows"]

    mark = Mark.parse(compared["mark"])
    await _check_rows(testbed, compared)
    await _check_compaction(testbed, compared)
    await _check_upcasts(testbed, mark)

    upgraded = testbed.upgraded()
    before = await upgraded.verify(mark)
    shutil.rmtree(Path(root, testbed.scope.tenant_id))
    rebuilt = await upgraded.rebuild()
    after = await upgraded.verify(mark)
    assert rebuilt["rows"] >= before["lake"]["rows"]
    assert after["equal"]
    assert after["lake"] == before["lake"], "the same events have the same checksum"
    with pytest.raises(InputError, match="has not come as far"):
        await upgraded.verify(await testbed.runtime.ledger.head())

    assert (await upgraded.drop())["files"] > 0
    assert (await upgraded.status())["days"] == []
    await upgraded.sync()
    assert (await upgraded.verify(mark))["lake"] == before["lake"]
    await _check_difference(testbed, upgraded)


async def _follow_slow_commits(testbed: LakeTestbed, other: LakeTestbed) -> None:
    """Follow while others append, one of whom takes its time before it commits."""
    stop, seen, committed = asyncio.Event(), asyncio.Event(), Mark.zero()

    def told(progress: dict[str, Any]) -> None:
        nonlocal committed
        committed = Mark.parse(progress["mark"])
        seen.set()

    following = asyncio.create_task(testbed.lake.sync(follow=True, told=told, stop=stop))
    stream = execution_stream(testbed.scope, testbed.runtime.ids.mint())
    async with testbed.runtime.ledger.decision(testbed.scope) as slow:
        # On a slow machine the server would end the transaction for having been idle.
        await slow.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await slow.append(stream, [testbed.drafts.execution(stream.execution_id or 0)])
        appending = asyncio.create_task(testbed.write(3))
        await other.write(2)
        with suppress(TimeoutError):
            # What follows may have nothing to tell before this transaction has ended.
            async with asyncio.timeout(3):
                await seen.wait()
    await appending
    target = await testbed.runtime.ledger.head()
    with pytest.raises(Conflict, match="another process"):
        await testbed.lake.sync()
    # Other tenants' events and its own bookkeeping start no batch, so that it need not come to the very head.
    while await testbed.streamed.has_news(committed, target):
        seen.clear()
        waiting = asyncio.create_task(seen.wait())
        await asyncio.wait({following, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not following.done(), following.result()
    stop.set()
    assert (await following)["batches"] > 0


async def _check_rows(testbed: LakeTestbed, compared: dict[str, Any]) -> None:
    """Look at the rows, their lineage and their files; nothing of another tenant is there."""
    rows = await testbed.rows()
    assert set(rows[0]) == {*EVENT_COLUMNS, *LINEAGE_COLUMNS, *PLACE_COLUMNS}
    assert len(rows) == len({(row["shard"], row["position"]) for row in rows}) == compared["lake"]["rows"]
    assert {row["tenant_id"] for row in rows} == {row["tenant"] for row in rows} == {testbed.scope.tenant_id}
    tasks = {task.task_id for task in await testbed.tested.tasks() if task.status == "Completed"}
    assert {row["batch"] for row in rows} <= tasks
    assert all(Mark.parse(row["source_mark"]).positions[row["shard"]] >= row["position"] for row in rows)
    spelled = f"tenant={testbed.scope.tenant_id}/organization=main/day="
    paths = [str(path) for path in testbed.written()]
    assert all(spelled in path for path in paths if testbed.scope.tenant_id in path)
    assert not [path for path in paths if "other-" in path], "only its own lake was asked for"


async def _check_compaction(testbed: LakeTestbed, compared: dict[str, Any]) -> None:
    assert len(await testbed.files()) > 1
    await testbed.lake.compact()
    assert len(await testbed.files()) == 1
    after = await testbed.lake.verify()
    assert after["equal"]
    assert after["lake"] == compared["lake"]


async def _check_upcasts(testbed: LakeTestbed, mark: Mark) -> None:
    """A second version of a schema appears, with code that knows it: the lake then has the second throughout."""
    old = await testbed.lake.status()
    await testbed.note(2, 2)
    upgraded = testbed.upgraded()
    await upgraded.sync()
    assert (await upgraded.status())["generation"] != old["generation"]
    assert (await upgraded.verify())["equal"]
    noted = [row for row in await testbed.rows() if row["schema_name"].endswith("business.noted")]
    assert [row["schema_version"] for row in noted] == [2] * 5
    assert sorted(row["upcast_from"] or 0 for row in noted) == [0, 0, 1, 1, 1]
    assert {row["meta"].replace(" ", "") for row in noted} == {'{"amount":5,"unit":"cent"}'}


async def _check_difference(testbed: LakeTestbed, lake: Any) -> None:
    """An event that gets into the lake twice is found, and told where it is."""
    (job,) = (await testbed.streamed.serving("noetl_lake")).values()
    state = await testbed.streamed.state(job)
    grant = await testbed.streamed.begin(job, "twice")
    (target,) = grant.targets
    view = await testbed.tested.view("noetl_events")
    (manifest,) = await testbed.tested.pipelines.datasets.manifests(testbed.scope, view.partitions)
    table = (await testbed.tested.lake.read(manifest.files, schema_of(manifest.schema))).slice(0, 1)
    entry = await testbed.tested.lake.write(f"{target.location}{manifest.partition_key}/commit=twice", table)
    write = PartitionWrite(output=0, partition_key=manifest.partition_key, schema=manifest.schema, files=(entry,))
    await testbed.streamed.commit(grant, [write], state | {"commits": -1})
    (row,) = table.select(["shard", "position"]).to_pylist()
    found = await lake.verify()
    assert not found["equal"]
    assert found["difference"]["what"] == "the lake has the event 2 times"
    assert {name: found["difference"][name] for name in row} == row
