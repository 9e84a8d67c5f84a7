"""What an attempt wrote becomes visible: as a whole, on top of what it was made for, with a schema that may change so."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.integration.pipelines.tasks.task_testbed import ORDERS, TaskTestbed, written

from noetl.model.dataset import Field, Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.task import CheckResult, TaskGrant, TaskReport
from noetl.pipelines.tasks.port import BaseMoved

APPENDS = """
name: log
jobs:
  - name: lines
    operator: made_up
    runtime: dispatcher
    update_strategy: append
    unique_key: [id]
"""
REPLACES = """
name: log
jobs:
  - name: lines
    operator: made_up
    runtime: dispatcher
"""

SPLITS = """
name: log
jobs:
  - {name: lines, operator: made_up, runtime: dispatcher}
  - {name: days, operator: made_up, runtime: dispatcher, inputs: [lines], partition_by: [day]}
publish: [days]
"""


async def _two_running(testbed: TaskTestbed, text: str) -> list[TaskGrant]:
    """Return two attempts that run at once on the same partition, which stands at version 1."""
    await testbed.built(text)
    for _ in range(2):
        await testbed.engine.runs.emit(testbed.scope, "log", "lines", requested_by="test")
    grants = await testbed.claim()
    assert len(grants) == 2
    return grants


async def _manifest(testbed: TaskTestbed) -> Manifest:
    (row,) = await testbed.rows("SELECT manifest_ref FROM noetl.partition_version WHERE current")
    ref = msgspec.json.decode(row["manifest_ref"], type=PayloadRef)
    return msgspec.json.decode(await testbed.payloads.fetch(testbed.scope, ref), type=Manifest)


async def test_an_append_that_another_overtook_is_told_what_landed(testbed: TaskTestbed) -> None:
    """INV-57."""
    first, second = await _two_running(testbed, APPENDS)
    await testbed.tasks.complete(first, TaskReport(status="ok", writes=(written(first, 0, "all", "first"),)))
    write = written(second, 0, "all", "second")
    with pytest.raises(BaseMoved) as moved:
        await testbed.tasks.complete(second, TaskReport(status="ok", writes=(write,)))
    assert moved.value.parts[0, "all"].version == 2
    assert len(moved.value.landed[0, "all"].files) == 2
    again = msgspec.structs.replace(write, base_version=2)
    assert await testbed.tasks.complete(second, TaskReport(status="ok", writes=(again,))) == "Completed"
    manifest = await _manifest(testbed)
    assert (manifest.version, len(manifest.files)) == (3, 3)
    assert [entry.added for entry in manifest.files] == [1, 2, 3]
    assert len(manifest.added_since(1)) == 2


async def test_appends_at_the_same_moment_never_lose_a_row(testbed: TaskTestbed) -> None:
    """INV-57."""
    grants = await _two_running(testbed, APPENDS)

    async def commit(grant: TaskGrant, text: str) -> None:
        write = written(grant, 0, "all", text)
        while True:
            try:
                await testbed.tasks.complete(grant, TaskReport(status="ok", writes=(write,)))
            except BaseMoved as moved:
                write = msgspec.structs.replace(write, base_version=moved.parts[0, "all"].version)
            else:
                return

    await asyncio.gather(*(commit(grant, f"{number}") for number, grant in enumerate(grants)))
    manifest = await _manifest(testbed)
    assert (manifest.version, len(manifest.files)) == (3, 3)


async def test_of_two_replacements_the_last_one_stands_and_both_are_recorded(testbed: TaskTestbed) -> None:
    first, second = await _two_running(testbed, REPLACES)
    for grant, text in ((first, "first"), (second, "second")):
        report = TaskReport(status="ok", writes=(written(grant, 0, "all", text),))
        assert await testbed.tasks.complete(grant, report) == "Completed"
    manifest = await _manifest(testbed)
    assert (manifest.version, [entry.added for entry in manifest.files]) == (3, [3])
    assert len(await testbed.rows("SELECT FROM noetl.partition_version")) == 3


async def test_a_dropped_partition_is_gone_and_may_come_back(testbed: TaskTestbed) -> None:
    await testbed.built()
    for salt, days in (("a", ["1"]), ("b", ["1", "2"])):
        await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
        (grant,) = await testbed.claim("orders")
        report = testbed.report(grant, days, salt=salt)
        gone = tuple((0, f"day={day}") for day in ("1", "2") if day not in days)
        await testbed.tasks.complete(grant, msgspec.structs.replace(report, dropped=gone))
        expected = {"day=1": 2} if salt == "a" else {"day=1": 3, "day=2": 3}
        assert await testbed.current("orders") == expected


async def test_what_read_a_dropped_partition_is_worked_again(testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await testbed.claim("orders")
    await testbed.tasks.complete(grant, TaskReport(status="ok", dropped=((0, "day=2"),)))
    (clean,) = await testbed.claim()
    assert (clean.job, clean.partition_key, clean.inputs[0].parts) == ("clean", "day=2", ())


async def test_a_new_column_is_refused_with_a_diff_unless_declared(testbed: TaskTestbed) -> None:
    await testbed.built(REPLACES)
    grant = await _emitted(testbed)
    wider = (*ORDERS, Field("tip", "int"))
    report = TaskReport(status="ok", writes=(written(grant, 0, "all", "x", schema=wider),))
    assert await testbed.tasks.complete(grant, report) == "Failed"
    task = await testbed.task(grant.lease.task_id)
    assert not task.open
    assert "column tip (int) is new" in (task.error or "")
    assert len(await testbed.rows("SELECT FROM noetl.dataset_schema")) == 1


async def test_a_declared_change_of_schema_is_recorded_once(testbed: TaskTestbed) -> None:
    await testbed.built(REPLACES + "    schema: {evolve: add_columns}\n")
    wider = (*ORDERS, Field("tip", "int"))
    for text in ("x", "y"):
        grant = await _emitted(testbed)
        report = TaskReport(status="ok", writes=(written(grant, 0, "all", text, schema=wider),))
        assert await testbed.tasks.complete(grant, report) == "Completed"
    rows = await testbed.rows("SELECT change FROM noetl.dataset_schema ORDER BY version")
    assert [tuple(row) for row in rows] == [("first",), ("evolved",)]


async def test_first_commits_at_the_same_moment_agree_on_a_schema(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant))
    grants = await testbed.claim()
    assert len(grants) == 2
    other = (Field("day", "string"), Field("amount", "string"))
    reports = [
        TaskReport(status="ok", writes=(written(one, 0, one.partition_key, "x", schema=schema),))
        for one, schema in zip(grants, (ORDERS, other), strict=True)
    ]
    statuses = await asyncio.gather(*(map(testbed.tasks.complete, grants, reports)))
    assert sorted(statuses) == ["Completed", "Failed"]


async def test_a_broken_check_fails_the_task_at_once_and_a_warning_does_not(testbed: TaskTestbed) -> None:
    await testbed.built(REPLACES)
    warned = CheckResult(label="row_count", passed=False, severity="warn", violations=1)
    broken = CheckResult(label="unique(id)", passed=False, severity="block", violations=3)
    grant = await _emitted(testbed)
    report = TaskReport(status="ok", writes=(written(grant, 0, "all", "x"),), checks=(warned,))
    assert await testbed.tasks.complete(grant, report) == "Completed"
    grant = await _emitted(testbed)
    assert await testbed.tasks.complete(grant, msgspec.structs.replace(report, checks=(warned, broken))) == "Failed"
    task = await testbed.task(grant.lease.task_id)
    assert (task.open, task.attempt) == (False, 1)
    assert "unique(id): 3 violations" in (task.error or "")
    (story,) = await testbed.engine.by_hand.history(testbed.scope, grant.lease.task_id)
    assert [check["label"] for check in story.told["checks"]] == ["row_count", "unique(id)"]


async def test_the_state_of_an_operator_is_saved_on_top_of_what_it_was_given(testbed: TaskTestbed) -> None:
    first, second = await _two_running(testbed, REPLACES)
    assert first.operator_state == {}
    done = TaskReport(status="ok", operator_state={"seen": 5})
    assert await testbed.tasks.complete(first, done) == "Completed"
    assert await testbed.tasks.complete(second, TaskReport(status="ok", operator_state={"seen": 7})) == "Failed"
    (again,) = await testbed.claim()
    assert (again.lease.task_id, again.lease.attempt) == (second.lease.task_id, 2)
    assert again.operator_state == {"seen": 5}


async def test_outputs_too_many_to_list_are_summed_up(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant, [f"{number}" for number in range(300)]))
    (output,) = (await testbed.task(grant.lease.task_id)).outputs
    assert (output["partitions"], output["rows"]) == (300, 300)


async def test_news_are_consumed_once_and_cursors_follow(testbed: TaskTestbed) -> None:
    text = APPENDS + "  - {name: copy, operator: made_up, runtime: dispatcher, inputs: [lines], "
    text += "execution_strategy: PerUpdate, update_strategy: append, unique_key: [id]}\n"
    await testbed.built(text)
    seen: list[Any] = []
    for number in range(2):
        grant = await _emitted(testbed)
        await testbed.tasks.complete(grant, TaskReport(status="ok", writes=(written(grant, 0, "all", f"{number}"),)))
        (copy,) = await testbed.claim("copy")
        seen += [(part.version, part.after) for part in copy.inputs[0].parts]
        await testbed.tasks.complete(copy, testbed.report(copy))
    assert seen == [(2, 1), (3, 2)]
    (cursor,) = await testbed.rows("SELECT version FROM noetl.dataset_cursor")
    assert cursor["version"] == 3


async def _emitted(testbed: TaskTestbed) -> TaskGrant:
    await testbed.engine.runs.emit(testbed.scope, "log", "lines", requested_by="test")
    (grant,) = await testbed.claim("lines")
    return grant


async def test_what_is_split_by_value_is_worked_one_after_the_other_and_never_mixed(testbed: TaskTestbed) -> None:
    """INV-61. Work of older inputs that comes late puts back no partition which newer inputs have no rows for."""
    await testbed.built(SPLITS, days=("0",))
    for salt in ("first", "second"):
        await testbed.engine.runs.emit(testbed.scope, "log", "lines", requested_by="test")
        (source,) = await testbed.claim("lines")
        await testbed.tasks.complete(source, testbed.report(source, salt=salt))
    (older,) = await testbed.claim("days")
    assert await testbed.claim("days") == [], "the second waits for the first"
    await testbed.expire(older.lease.task_id)
    assert await testbed.engine.reaper.sweep() == 1
    rows = await testbed.rows("SELECT task_id::text FROM noetl.task WHERE job = 'days' ORDER BY created_event_id")
    _, first, second = (row[0] for row in rows)
    assert older.lease.task_id == first
    await testbed.engine.by_hand.cancel(testbed.scope, first, reason="later", by="test")
    (newer,) = await testbed.claim("days")
    assert newer.lease.task_id == second
    gone = TaskReport(status="ok", writes=(written(newer, 0, "day=2", "second"),), dropped=((0, "day=0"),))
    await testbed.tasks.complete(newer, gone)
    await testbed.engine.by_hand.retry(testbed.scope, first, by="test")
    (again,) = await testbed.claim("days")
    status = await testbed.tasks.complete(again, testbed.report(again, ("1",)))
    assert (again.lease.task_id, status) == (first, "Skipped")
    assert await testbed.current("days") == {"day=2": 1}
