"""Facts follow the lake, on local Spark and on a cluster: day by day, after a refresh that broke off, and when the lake is built anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers, LakeTestbed, fresh_scope

from noetl.errors import NoetlError
from noetl.model.ids import snowflake_at
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.runtime.spark.event_lake.answers import LakeDesk
from noetl.runtime.spark.event_lake.lake import EventLake
from noetl.spark.event_lake.facts.catalogue import FACTS
from noetl.testing.engines.pipelines import Row
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
async def testbed(
    playbooks: Playbooks, task_engine: TaskEngine, any_drivers: SharedDrivers
) -> AsyncIterator[LakeTestbed]:
    """An organization with a lake to be."""
    root = any_drivers.options.lake_root
    drivers = AnsweringDrivers(any_drivers)
    made = LakeTestbed(playbooks, task_engine, fresh_scope("facts"), root, drivers)
    own = made.runtime.settings
    with_facts = own.model_copy(update={"event_lake": own.event_lake.model_copy(update={"facts": True})})
    made.lake = EventLake(replace(made.runtime, settings=with_facts), made.scope, made.streamed, drivers)
    async with made.streamed.open():
        yield made


async def days(testbed: LakeTestbed, name: str) -> dict[str, int]:
    """Return the version of each day of a dataset."""
    return {part.partition_key: part.version for part in (await testbed.tested.view(name)).partitions}


async def facts(testbed: LakeTestbed) -> dict[str, list[Row]]:
    return {fact.name: await testbed.tested.rows(fact.name) for fact in FACTS}


async def test_facts_follow_the_lake(testbed: LakeTestbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-92, INV-93."""
    await testbed.write(2)
    await testbed.lake.sync()
    executions = await testbed.tested.rows("noetl_executions")
    counted = await testbed.tested.fetch(
        "SELECT count(DISTINCT execution_id) AS n FROM noetl.event WHERE event_type LIKE 'playbook.%'"
    )
    assert sum(row["kind"] == "playbook" for row in executions) == counted[0]["n"] == 2
    assert {row["organization_id"] for row in executions} == {testbed.scope.organization_id}
    first = await days(testbed, "noetl_executions")

    # A run of an earlier day changes that day alone; the refresh breaks off after some of the datasets.
    earlier = snowflake_at(datetime.now(UTC) - timedelta(days=3))
    minted = iter([earlier])
    drafts = Drafts(testbed.scope, lambda: next(minted, None) or testbed.runtime.ids.mint())
    await framed_run(testbed.runtime.ledger, drafts)
    with monkeypatch.context() as broken:
        broken.setattr(LakeDesk, "_commit", _refusing("noetl_tasks"))
        with pytest.raises(NoetlError, match="not today"):
            await testbed.lake.sync()
    assert len(await days(testbed, "noetl_executions")) == 2
    assert len(await days(testbed, "noetl_frames")) == 2
    assert len(await days(testbed, "noetl_attempts")) == 1
    await testbed.lake.sync()
    second = await days(testbed, "noetl_attempts")
    assert len(second) == 2
    (today,) = first
    rows = await facts(testbed)
    assert sum(row["execution_id"] == earlier for row in rows["noetl_executions"]) == 1
    assert today in second

    # Nothing new: nothing is written. A lake that is built anew makes all facts anew, and they are the same.
    await testbed.lake.sync()
    assert await days(testbed, "noetl_attempts") == second
    await testbed.lake.rebuild()
    again = await facts(testbed)
    assert set(_told(rows.pop("noetl_audit"))) <= set(_told(again.pop("noetl_audit"))), (
        "the rebuild itself is in it, too"
    )
    assert {name: _told(found) for name, found in again.items()} == {name: _told(found) for name, found in rows.items()}


def _refusing(job: str) -> Any:
    real = LakeDesk._commit

    async def commit(self: LakeDesk, question: dict[str, Any]) -> dict[str, Any]:
        if self._open[question["task_id"]].job == job:
            raise NoetlError("not today")
        return await real(self, question)

    return commit


def _told(rows: list[Row]) -> list[str]:
    """Return what rows say of work other than the lake's own, which goes on while it is looked at."""
    return sorted(str(row) for row in rows if "noetl_" not in str(row) and row.get("kind") != "emission")
