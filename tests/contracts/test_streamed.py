"""Datasets of streaming programs: each batch is committed once, with its state, as a task nobody else ever sees wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from noetl.model.dataset import Field
from noetl.model.mark import Mark
from noetl.model.task import PartitionWrite, TaskGrant
from noetl.pipelines.datasets.streamed import CommitLost, Streamed, bundle_of
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.spark.lake.storage import Lake, commit_directory
from noetl.testing.engines.pipelines import TestedPipelines, connected
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

DAG = """
name: streamed
jobs:
  - name: numbers
    operator: noop
    partition_by: [day]
    unique_key: [n]
    max_attempts: 1
    schema: {columns: {n: bigint, day: string}}
publish: [numbers]
"""
SCHEMA = (Field("n", "bigint"), Field("day", "string"))


@pytest.fixture
def tested(playbooks: Playbooks, task_engine: TaskEngine) -> TestedPipelines:
    """Pipelines that nobody works for but the test."""
    home = playbooks.home
    return connected(task_engine, playbooks.runtime, playbooks.scope, Lake(str(home / "lake")), home / "dag")


@pytest.fixture
async def streamed(tested: TestedPipelines) -> AsyncIterator[Streamed]:
    """Streamed datasets on the pipelines of the test."""
    runtime = tested.runtime
    one = Streamed(
        tested.scope, tested.pipelines, runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint,
        runtime.ids.mint_many, PRODUCER,
    )  # fmt: skip
    async with one.open():
        yield one


async def write(tested: TestedPipelines, grant: TaskGrant, day: str, *numbers: int) -> PartitionWrite:
    """Write rows of an attempt."""
    (target,) = grant.targets
    folder = commit_directory(target.location, f"day={day}", grant.lease.task_id, grant.lease.attempt, "0")
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "day": [day] * len(numbers)})
    entry = await tested.lake.write(folder, rows)
    return PartitionWrite(output=0, partition_key=f"day={day}", schema=SCHEMA, files=(entry,))


async def deployed(streamed: Streamed) -> JobFacts:
    """Deploy the DAG of the test and let it serve readers."""
    job = (await streamed.deploy(bundle_of(DAG), "tests"))["numbers"]
    await streamed.serve(job, "tests")
    return job


async def test_batches_are_committed_once_with_their_state(tested: TestedPipelines, streamed: Streamed) -> None:
    """INV-87."""
    job = await deployed(streamed)
    again = await streamed.deploy(bundle_of(DAG), "tests")
    assert again["numbers"].generation == job.generation, "the same files are deployed once"
    assert await streamed.state(job) == {}
    first = await streamed.begin(job, "one")
    await streamed.commit(first, [await write(tested, first, "a", 1, 2)], {"upto": 2})
    second = await streamed.begin(job, "two")
    writes = [await write(tested, second, "a", 3), await write(tested, second, "b", 4)]
    await streamed.commit(second, writes, {"upto": 4}, metrics={"rows_written": 2})
    assert await streamed.state(job) == {"upto": 4}
    assert [row["n"] for row in await tested.rows("numbers")] == [1, 2, 3, 4]
    with pytest.raises(CommitLost, match="committed before"):
        await streamed.begin(job, "two")


async def test_of_two_attempts_on_the_same_state_one_is_committed(tested: TestedPipelines, streamed: Streamed) -> None:
    """INV-87."""
    job = await deployed(streamed)
    one, other = await streamed.begin(job, "one"), await streamed.begin(job, "other")
    await streamed.commit(one, [await write(tested, one, "a", 1)], {"upto": 1})
    with pytest.raises(CommitLost):
        await streamed.commit(other, [await write(tested, other, "b", 1)], {"upto": 1, "by": "other"})
    third = await streamed.begin(job, "third")
    await streamed.give_up(third, "the program ended")
    again = await streamed.begin(job, "third")
    await streamed.commit(again, [await write(tested, again, "a", 1)], {"upto": 2}, rewrites=True)
    assert [row["n"] for row in await tested.rows("numbers")] == [1]
    assert await streamed.state(job) == {"upto": 2}
    assert [task.status for task in await tested.tasks()][1:] == ["Completed", "Failed", "Failed", "Completed"]


async def test_their_own_bookkeeping_is_no_news(tested: TestedPipelines, streamed: Streamed) -> None:
    """INV-88."""
    before = await tested.runtime.ledger.head()
    job = await deployed(streamed)
    start = await tested.runtime.ledger.head()
    assert await streamed.has_news(before, start), "a deploy is news"
    grant = await streamed.begin(job, "one")
    await streamed.commit(grant, [await write(tested, grant, "a", 1)], {"upto": 1})
    await tested.finished(grant.execution_id)
    head = await tested.runtime.ledger.head()
    assert head != start
    assert not await streamed.has_news(start, head)
    assert not await streamed.has_news(Mark(head.positions), head)
