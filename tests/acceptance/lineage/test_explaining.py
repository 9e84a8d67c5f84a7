"""`noetl explain`: from a row to its generation, task, frame, inputs, code and cause."""

from __future__ import annotations

import pytest

from noetl.cli.datasets import explain_show
from noetl.errors import InputError
from noetl.pipelines.datasets.dataset_reader import DatasetReader
from noetl.pipelines.explain.explanation import Explaining
from noetl.pipelines.explain.values import Explained
from noetl.pipelines.operators.playbook import PlaybookOperator
from noetl.pipelines.tables.partitions import TableWriter
from noetl.pipelines.worker.in_process import InProcess
from noetl.testing.engines.pipelines import TestedPipelines, connected
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

from ..pipelines.shop import order, shop
from .conftest import Told

pytestmark = pytest.mark.service


async def explained(tested: TestedPipelines, dataset: str, where: str, most: int = 10) -> Explained:
    runtime = tested.runtime
    reader = DatasetReader(tested.scope, runtime.database, runtime.payloads, runtime.history)
    seen = await reader.seen(dataset, None, await runtime.history.head())
    explaining = Explaining(tested.scope, runtime.database, runtime.payloads, runtime.history, tested.lake)
    return await explaining.explain(seen, where, most)


async def test_a_row_is_followed_to_what_asked_for_it(tested: TestedPipelines) -> None:
    """INV-75."""
    tested.give("orders", order(1, 10), order(2, 20))
    deployed = await tested.deploy(shop())
    tested.give("orders", order(1, 10), order(2, 22))
    run = await tested.start("shop", "orders")
    await tested.finished(run)
    found = await explained(tested, "clean", "day = '2' AND amount > 0")
    (row,) = found.rows
    (maker,) = found.makers
    assert (row.values["amount"], row.partition_key, row.version) == (22, "day=2", 2)
    assert (found.files, found.opened) == (2, 1), "statistics tell that the other file cannot have it"
    tasks = {task.task_id: task for task in await tested.tasks("clean")}
    task = tasks[row.task_id]
    assert (maker.task_id, maker.attempt, task.partition_key) == (task.task_id, 1, "day=2")
    version = await tested.pipelines.dags.version(tested.scope, "shop", deployed.dag_version_id)
    assert maker.code.bundle_digest == version.bundle_digest
    assert maker.code.dag_version_id == deployed.dag_version_id
    (read,) = maker.inputs
    (source,) = [one for one in await tested.tasks("orders") if one.execution_id == run]
    assert (read.dataset, read.partition_key, read.version, read.task_id) == (
        "shop.orders.0",
        "day=2",
        2,
        source.task_id,
    )
    assert [one.event_type for one in maker.causes] == [
        "partition.committed",
        "task.claimed",
        "task.created",
        "partition.committed",
        "task.created",
        "execution.requested",
    ]
    assert maker.causes[0].event_id == row.commit_event_id
    assert maker.causes[-1].said == "tests asked for it: emission of shop"
    assert {one.execution_id for one in maker.causes} == {str(run)}


async def test_a_row_of_a_build_goes_back_to_the_deploy(tested: TestedPipelines) -> None:
    tested.give("orders", order(1, 10))
    deployed = await tested.deploy(shop())
    found = await explained(tested, "totals", "amount = 10")
    (maker,) = found.makers
    assert maker.causes[-1].said == "tests asked for it: deploy of shop"
    assert maker.causes[-1].execution_id == str(deployed.execution_id)
    assert [one.said.split(",")[0] for one in maker.causes if one.event_type == "task.created"] == [
        "a task of job totals was made",
        "a task of job clean was made",
        "a task of job orders was made",
    ]


async def test_rows_are_explained_as_of_then(tested: TestedPipelines, told: Told) -> None:
    """INV-75."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    before = await told.mark()
    tested.give("orders", order(1, 11))
    await tested.emit("shop", "orders")
    runtime = tested.runtime
    reader = DatasetReader(tested.scope, runtime.database, runtime.payloads, runtime.history)
    explaining = Explaining(tested.scope, runtime.database, runtime.payloads, runtime.history, tested.lake)
    found = await explaining.explain(await reader.seen("clean", None, before), "day = '1'")
    assert [(row.values["amount"], row.version) for row in found.rows] == [(10, 1)]
    assert [(row.values["amount"], row.version) for row in (await explained(tested, "clean", "day = '1'")).rows] == [
        (11, 2)
    ]


async def test_rows_that_are_not_there_are_said_to_be_missing(tested: TestedPipelines) -> None:
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    found = await explained(tested, "clean", "amount = 11")
    assert (found.rows, found.opened) == ((), 0)
    assert explain_show.text(found) == "no row of clean has amount = 11\n"
    with pytest.raises(InputError, match="does not fit its column"):
        await explained(tested, "clean", "amount = 'ten'")


async def test_more_rows_than_asked_for_are_not_told(tested: TestedPipelines) -> None:
    tested.give("orders", *(order(1, amount) for amount in range(5)))
    await tested.deploy(shop())
    found = await explained(tested, "clean", "day = '1'", most=2)
    assert ([row.values["amount"] for row in found.rows], found.more, len(found.makers)) == ([0, 1], True, 1)
    text = explain_show.text(found)
    assert text.count("as told above") == 1
    assert "because" in text
    assert "tests asked for it: deploy of shop" in text


PEOPLE = playbook(
    """
    workflow:
      - step: start
        next: {arcs: [{step: ask}]}
      - step: ask
        loop:
          in: "{{ [1, 2, 3, 4, 5] }}"
          iterator: n
          spec: {mode: parallel, frame: {max_rows: 2}}
        tool: {kind: python, args: {n: "{{ iter.n }}"}, code: "result = {'id': int(n), 'name': 'p' + str(n)}"}
    """,
    "tests/people",
)
PEOPLE_DAG = """
name: crm
jobs:
  - name: people
    operator: playbook
    runtime: dispatcher
    config: {playbook: people.yaml, step: ask}
publish: [people]
"""


async def test_a_row_that_a_playbook_made_names_its_frame(playbooks: Playbooks, task_engine: object) -> None:
    """INV-75."""
    from noetl.pipelines.tasks.engine import TaskEngine
    from noetl.spark.lake.storage import Lake

    assert isinstance(task_engine, TaskEngine)
    home = playbooks.home
    tested = connected(task_engine, playbooks.runtime, playbooks.scope, Lake(str(home / "lake")), home / "dag")
    await playbooks.worker()
    operator = PlaybookOperator(tested.scope, playbooks.engine, tested.runtime.database, tested.runtime.payloads)
    runner = InProcess({"playbook": operator}, TableWriter(tested.lake))
    async with tested.worker(runner, lambda grant, status, error: None):
        await tested.deploy(PEOPLE_DAG, people__yaml=PEOPLE)
        found = await explained(tested, "people", "id IN (1, 5)")
    frames = {row.values["id"]: row.frame for row in found.rows}
    assert frames.keys() == {1, 5}
    one, five = frames[1], frames[5]
    assert one is not None
    assert five is not None
    assert one.frame_id != five.frame_id
    assert (one.step, one.execution_id) == ("ask", found.makers[0].playbook_execution)
    assert one.payload is not None
    assert one.payload.startswith("noetl://")
    assert f"frame {one.frame_id} of step ask" in explain_show.text(found)


async def test_a_row_that_was_sent_names_what_was_sent(tested: TestedPipelines) -> None:
    """INV-75."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    facts = await tested.engine.jobs.get(tested.scope, (await tested.tasks("orders"))[0].job_id)
    ref = await tested.runtime.payloads.store(tested.scope, b'{"day": "7"}', "application/json")
    tested.give("orders", order(7, 70))
    run, _ = await tested.engine.runs.start_once(
        tested.scope, facts, "sent:one", requested_by="webhook /orders", key="hook/one", sent=ref
    )
    await tested.finished(run)
    (maker,) = (await explained(tested, "shop.orders.0", "amount = 70")).makers
    assert maker.sent is not None
    assert maker.sent["uri"] == ref.uri
    assert maker.causes[-1].said == "webhook /orders asked for it: emission of shop"
