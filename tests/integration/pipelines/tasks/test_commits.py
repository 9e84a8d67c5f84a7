"""What an attempt wrote becomes visible: as a whole, on top of what it was made for, with a schema that may change so."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.integration.pipelines.tasks.task_testbed import ORDERS, Ground, written

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


async def _two_running(ground: Ground, text: str) -> list[TaskGrant]:
    """Return two attempts that run at once on the same partition, which stands at version 1."""
    await ground.built(text)
    for _ in range(2):
        await ground.engine.runs.emit(ground.scope, "log", "lines", requested_by="test")
    grants = await ground.claim()
    assert len(grants) == 2
    return grants


async def _manifest(ground: Ground) -> Manifest:
    (row,) = await ground.rows("SELECT manifest_ref FROM noetl.partition_version WHERE current")
    ref = msgspec.json.decode(row["manifest_ref"], type=PayloadRef)
    return msgspec.json.decode(await ground.payloads.fetch(ground.scope, ref), type=Manifest)


async def test_an_append_that_another_overtook_is_told_what_landed(ground: Ground) -> None:
    """INV-57."""
    first, second = await _two_running(ground, APPENDS)
    await ground.tasks.complete(first, TaskReport(status="ok", writes=(written(first, 0, "all", "first"),)))
    write = written(second, 0, "all", "second")
    with pytest.raises(BaseMoved) as moved:
        await ground.tasks.complete(second, TaskReport(status="ok", writes=(write,)))
    assert moved.value.parts[0, "all"].version == 2
    assert len(moved.value.landed[0, "all"].files) == 2
    again = msgspec.structs.replace(write, base_version=2)
    assert await ground.tasks.complete(second, TaskReport(status="ok", writes=(again,))) == "Completed"
    manifest = await _manifest(ground)
    assert (manifest.version, len(manifest.files)) == (3, 3)
    assert [entry.added for entry in manifest.files] == [1, 2, 3]
    assert len(manifest.added_since(1)) == 2


async def test_appends_at_the_same_moment_never_lose_a_row(ground: Ground) -> None:
    """INV-57."""
    grants = await _two_running(ground, APPENDS)

    async def commit(grant: TaskGrant, text: str) -> None:
        write = written(grant, 0, "all", text)
        while True:
            try:
                await ground.tasks.complete(grant, TaskReport(status="ok", writes=(write,)))
            except BaseMoved as moved:
                write = msgspec.structs.replace(write, base_version=moved.parts[0, "all"].version)
            else:
                return

    await asyncio.gather(*(commit(grant, f"{number}") for number, grant in enumerate(grants)))
    manifest = await _manifest(ground)
    assert (manifest.version, len(manifest.files)) == (3, 3)


async def test_of_two_replacements_the_last_one_stands_and_both_are_recorded(ground: Ground) -> None:
    first, second = await _two_running(ground, REPLACES)
    for grant, text in ((first, "first"), (second, "second")):
        report = TaskReport(status="ok", writes=(written(grant, 0, "all", text),))
        assert await ground.tasks.complete(grant, report) == "Completed"
    manifest = await _manifest(ground)
    assert (manifest.version, [entry.added for entry in manifest.files]) == (3, [3])
    assert len(await ground.rows("SELECT FROM noetl.partition_version")) == 3


async def test_a_dropped_partition_is_gone_and_may_come_back(ground: Ground) -> None:
    await ground.built()
    for salt, days in (("a", ["1"]), ("b", ["1", "2"])):
        await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
        (grant,) = await ground.claim("orders")
        report = ground.report(grant, days, salt=salt)
        gone = tuple((0, f"day={day}") for day in ("1", "2") if day not in days)
        await ground.tasks.complete(grant, msgspec.structs.replace(report, dropped=gone))
        expected = {"day=1": 2} if salt == "a" else {"day=1": 3, "day=2": 3}
        assert await ground.current("orders") == expected


async def test_what_read_a_dropped_partition_is_worked_again(ground: Ground) -> None:
    await ground.built()
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (grant,) = await ground.claim("orders")
    await ground.tasks.complete(grant, TaskReport(status="ok", dropped=((0, "day=2"),)))
    (clean,) = await ground.claim()
    assert (clean.job, clean.partition_key, clean.inputs[0].parts) == ("clean", "day=2", ())


async def test_a_new_column_is_refused_with_a_diff_unless_declared(ground: Ground) -> None:
    await ground.built(REPLACES)
    grant = await _emitted(ground)
    wider = (*ORDERS, Field("tip", "int"))
    report = TaskReport(status="ok", writes=(written(grant, 0, "all", "x", schema=wider),))
    assert await ground.tasks.complete(grant, report) == "Failed"
    task = await ground.task(grant.lease.task_id)
    assert not task.open
    assert "column tip (int) is new" in (task.error or "")
    assert len(await ground.rows("SELECT FROM noetl.dataset_schema")) == 1


async def test_a_declared_change_of_schema_is_recorded_once(ground: Ground) -> None:
    await ground.built(REPLACES + "    schema: {evolve: add_columns}\n")
    wider = (*ORDERS, Field("tip", "int"))
    for text in ("x", "y"):
        grant = await _emitted(ground)
        report = TaskReport(status="ok", writes=(written(grant, 0, "all", text, schema=wider),))
        assert await ground.tasks.complete(grant, report) == "Completed"
    rows = await ground.rows("SELECT change FROM noetl.dataset_schema ORDER BY version")
    assert [tuple(row) for row in rows] == [("first",), ("evolved",)]


async def test_first_commits_at_the_same_moment_agree_on_a_schema(ground: Ground) -> None:
    await ground.deploy()
    (grant,) = await ground.claim()
    await ground.tasks.complete(grant, ground.report(grant))
    grants = await ground.claim()
    assert len(grants) == 2
    other = (Field("day", "string"), Field("amount", "string"))
    reports = [
        TaskReport(status="ok", writes=(written(one, 0, one.partition_key, "x", schema=schema),))
        for one, schema in zip(grants, (ORDERS, other), strict=True)
    ]
    statuses = await asyncio.gather(*(map(ground.tasks.complete, grants, reports)))
    assert sorted(statuses) == ["Completed", "Failed"]


async def test_a_broken_check_fails_the_task_at_once_and_a_warning_does_not(ground: Ground) -> None:
    await ground.built(REPLACES)
    warned = CheckResult(label="row_count", passed=False, severity="warn", violations=1)
    broken = CheckResult(label="unique(id)", passed=False, severity="block", violations=3)
    grant = await _emitted(ground)
    report = TaskReport(status="ok", writes=(written(grant, 0, "all", "x"),), checks=(warned,))
    assert await ground.tasks.complete(grant, report) == "Completed"
    grant = await _emitted(ground)
    assert await ground.tasks.complete(grant, msgspec.structs.replace(report, checks=(warned, broken))) == "Failed"
    task = await ground.task(grant.lease.task_id)
    assert (task.open, task.attempt) == (False, 1)
    assert "unique(id): 3 violations" in (task.error or "")
    (story,) = await ground.engine.by_hand.history(ground.scope, grant.lease.task_id)
    assert [check["label"] for check in story.told["checks"]] == ["row_count", "unique(id)"]


async def test_the_state_of_an_operator_is_saved_on_top_of_what_it_was_given(ground: Ground) -> None:
    first, second = await _two_running(ground, REPLACES)
    assert first.operator_state == {}
    done = TaskReport(status="ok", operator_state={"seen": 5})
    assert await ground.tasks.complete(first, done) == "Completed"
    assert await ground.tasks.complete(second, TaskReport(status="ok", operator_state={"seen": 7})) == "Failed"
    (again,) = await ground.claim()
    assert (again.lease.task_id, again.lease.attempt) == (second.lease.task_id, 2)
    assert again.operator_state == {"seen": 5}


async def test_outputs_too_many_to_list_are_summed_up(ground: Ground) -> None:
    await ground.deploy()
    (grant,) = await ground.claim()
    await ground.tasks.complete(grant, ground.report(grant, [f"{number}" for number in range(300)]))
    (output,) = (await ground.task(grant.lease.task_id)).outputs
    assert (output["partitions"], output["rows"]) == (300, 300)


async def test_news_are_consumed_once_and_cursors_follow(ground: Ground) -> None:
    text = APPENDS + "  - {name: copy, operator: made_up, runtime: dispatcher, inputs: [lines], "
    text += "execution_strategy: PerUpdate, update_strategy: append, unique_key: [id]}\n"
    await ground.built(text)
    seen: list[Any] = []
    for number in range(2):
        grant = await _emitted(ground)
        await ground.tasks.complete(grant, TaskReport(status="ok", writes=(written(grant, 0, "all", f"{number}"),)))
        (copy,) = await ground.claim("copy")
        seen += [(part.version, part.after) for part in copy.inputs[0].parts]
        await ground.tasks.complete(copy, ground.report(copy))
    assert seen == [(2, 1), (3, 2)]
    (cursor,) = await ground.rows("SELECT version FROM noetl.dataset_cursor")
    assert cursor["version"] == 3


async def _emitted(ground: Ground) -> TaskGrant:
    await ground.engine.runs.emit(ground.scope, "log", "lines", requested_by="test")
    (grant,) = await ground.claim("lines")
    return grant


async def test_what_is_split_by_value_is_worked_one_after_the_other_and_never_mixed(ground: Ground) -> None:
    """INV-61. Work of older inputs that comes late puts back no partition which newer inputs have no rows for."""
    await ground.built(SPLITS, days=("0",))
    for salt in ("first", "second"):
        await ground.engine.runs.emit(ground.scope, "log", "lines", requested_by="test")
        (source,) = await ground.claim("lines")
        await ground.tasks.complete(source, ground.report(source, salt=salt))
    (older,) = await ground.claim("days")
    assert await ground.claim("days") == [], "the second waits for the first"
    await ground.expire(older.lease.task_id)
    assert await ground.engine.reaper.sweep() == 1
    rows = await ground.rows("SELECT task_id::text FROM noetl.task WHERE job = 'days' ORDER BY created_event_id")
    _, first, second = (row[0] for row in rows)
    assert older.lease.task_id == first
    await ground.engine.by_hand.cancel(ground.scope, first, reason="later", by="test")
    (newer,) = await ground.claim("days")
    assert newer.lease.task_id == second
    gone = TaskReport(status="ok", writes=(written(newer, 0, "day=2", "second"),), dropped=((0, "day=0"),))
    await ground.tasks.complete(newer, gone)
    await ground.engine.by_hand.retry(ground.scope, first, by="test")
    (again,) = await ground.claim("days")
    status = await ground.tasks.complete(again, ground.report(again, ("1",)))
    assert (again.lease.task_id, status) == (first, "Skipped")
    assert await ground.current("days") == {"day=2": 1}
