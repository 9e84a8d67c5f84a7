"""The event lake is the ledger, on local Spark and on a cluster: followed, upgraded, put together, dropped, built anew."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers, LakeGround, fresh_scope

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
async def ground(
    playbooks: Playbooks, task_engine: TaskEngine, any_drivers: SharedDrivers
) -> AsyncIterator[LakeGround]:
    """An organization with a lake to be."""
    root = any_drivers.options.lake_root
    made = LakeGround(playbooks, task_engine, fresh_scope("acme"), root, AnsweringDrivers(any_drivers))
    async with made.streamed.open():
        yield made


async def test_the_lake_is_the_ledger(
    ground: LakeGround, playbooks: Playbooks, task_engine: TaskEngine, any_drivers: SharedDrivers
) -> None:
    """INV-87, INV-88, INV-89, INV-90, INV-91."""
    root = any_drivers.options.lake_root
    other = LakeGround(playbooks, task_engine, fresh_scope("other"), root, AnsweringDrivers(any_drivers))
    with pytest.raises(NotFound, match="no event lake"):
        await ground.lake.verify()
    await asyncio.gather(ground.write(6), other.write(6), ground.note(1, 3))
    first = await ground.lake.sync()
    assert first["batches"] == 1
    assert await ground.lake.sync() == {"batches": 0, "rows": 0, "mark": first["mark"]}, "its own commits are no news"

    await _follow_slow_commits(ground, other)
    compared = await ground.lake.verify()
    assert compared["equal"], compared["difference"]
    assert compared["ledger"]["rows"] > first["rows"]

    mark = Mark.parse(compared["mark"])
    await _check_rows(ground, compared)
    await _check_compaction(ground, compared)
    await _check_upcasts(ground, mark)

    upgraded = ground.upgraded()
    before = await upgraded.verify(mark)
    shutil.rmtree(Path(root, ground.scope.tenant_id))
    rebuilt = await upgraded.rebuild()
    after = await upgraded.verify(mark)
    assert rebuilt["rows"] >= before["lake"]["rows"]
    assert after["equal"]
    assert after["lake"] == before["lake"], "the same events have the same checksum"
    with pytest.raises(InputError, match="has not come as far"):
        await upgraded.verify(await ground.runtime.ledger.head())

    assert (await upgraded.drop())["files"] > 0
    assert (await upgraded.status())["days"] == []
    await upgraded.sync()
    assert (await upgraded.verify(mark))["lake"] == before["lake"]
    await _check_difference(ground, upgraded)


async def _follow_slow_commits(ground: LakeGround, other: LakeGround) -> None:
    """Follow while others append, one of whom takes its time before it commits."""
    stop, seen, committed = asyncio.Event(), asyncio.Event(), Mark.zero()

    def told(progress: dict[str, Any]) -> None:
        nonlocal committed
        committed = Mark.parse(progress["mark"])
        seen.set()

    following = asyncio.create_task(ground.lake.sync(follow=True, told=told, stop=stop))
    stream = execution_stream(ground.scope, ground.runtime.ids.mint())
    async with ground.runtime.ledger.decision(ground.scope) as slow:
        # On a slow machine the server would end the transaction for having been idle.
        await slow.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await slow.append(stream, [ground.drafts.execution(stream.execution_id or 0)])
        appending = asyncio.create_task(ground.write(3))
        await other.write(2)
        with suppress(TimeoutError):
            # What follows may have nothing to tell before this transaction has ended.
            async with asyncio.timeout(3):
                await seen.wait()
    await appending
    target = await ground.runtime.ledger.head()
    with pytest.raises(Conflict, match="another process"):
        await ground.lake.sync()
    # Other tenants' events and its own bookkeeping start no batch, so that it need not come to the very head.
    while await ground.streamed.has_news(committed, target):
        seen.clear()
        waiting = asyncio.create_task(seen.wait())
        await asyncio.wait({following, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not following.done(), following.result()
    stop.set()
    assert (await following)["batches"] > 0


async def _check_rows(ground: LakeGround, compared: dict[str, Any]) -> None:
    """Look at the rows, their lineage and their files; nothing of another tenant is there."""
    rows = await ground.rows()
    assert set(rows[0]) == {*EVENT_COLUMNS, *LINEAGE_COLUMNS, *PLACE_COLUMNS}
    assert len(rows) == len({(row["shard"], row["position"]) for row in rows}) == compared["lake"]["rows"]
    assert {row["tenant_id"] for row in rows} == {row["tenant"] for row in rows} == {ground.scope.tenant_id}
    tasks = {task.task_id for task in await ground.tested.tasks() if task.status == "Completed"}
    assert {row["batch"] for row in rows} <= tasks
    assert all(Mark.parse(row["source_mark"]).positions[row["shard"]] >= row["position"] for row in rows)
    spelled = f"tenant={ground.scope.tenant_id}/organization=main/day="
    paths = [str(path) for path in ground.written()]
    assert all(spelled in path for path in paths if ground.scope.tenant_id in path)
    assert not [path for path in paths if "other-" in path], "only its own lake was asked for"


async def _check_compaction(ground: LakeGround, compared: dict[str, Any]) -> None:
    assert len(await ground.files()) > 1
    await ground.lake.compact()
    assert len(await ground.files()) == 1
    after = await ground.lake.verify()
    assert after["equal"]
    assert after["lake"] == compared["lake"]


async def _check_upcasts(ground: LakeGround, mark: Mark) -> None:
    """A second version of a schema appears, with code that knows it: the lake then has the second throughout."""
    old = await ground.lake.status()
    await ground.note(2, 2)
    upgraded = ground.upgraded()
    await upgraded.sync()
    assert (await upgraded.status())["generation"] != old["generation"]
    assert (await upgraded.verify())["equal"]
    noted = [row for row in await ground.rows() if row["schema_name"].endswith("business.noted")]
    assert [row["schema_version"] for row in noted] == [2] * 5
    assert sorted(row["upcast_from"] or 0 for row in noted) == [0, 0, 1, 1, 1]
    assert {row["meta"].replace(" ", "") for row in noted} == {'{"amount":5,"unit":"cent"}'}


async def _check_difference(ground: LakeGround, lake: Any) -> None:
    """An event that gets into the lake twice is found, and told where it is."""
    (job,) = (await ground.streamed.serving("noetl_lake")).values()
    state = await ground.streamed.state(job)
    grant = await ground.streamed.begin(job, "twice")
    (target,) = grant.targets
    view = await ground.tested.view("noetl_events")
    (manifest,) = await ground.tested.pipelines.datasets.manifests(ground.scope, view.partitions)
    table = (await ground.tested.lake.read(manifest.files, schema_of(manifest.schema))).slice(0, 1)
    entry = await ground.tested.lake.write(f"{target.location}{manifest.partition_key}/commit=twice", table)
    write = PartitionWrite(output=0, partition_key=manifest.partition_key, schema=manifest.schema, files=(entry,))
    await ground.streamed.commit(grant, [write], state | {"commits": -1})
    (row,) = table.select(["shard", "position"]).to_pylist()
    found = await lake.verify()
    assert not found["equal"]
    assert found["difference"]["what"] == "the lake has the event 2 times"
    assert {name: found["difference"][name] for name in row} == row
