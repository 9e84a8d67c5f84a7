"""Retention of datasets on real rows and real files: exactly what nothing needs goes, and readers are told from when on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.errors import Conflict, HistoryNotKept, InputError, LeaseLost, ReportRefused, Unavailable
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.model.dataset import FileEntry
from noetl.model.mark import Mark
from noetl.model.task import PartitionWrite, TaskReport
from noetl.pipelines.tables.partitions import TableWriter
from noetl.runtime.assembly.retention import Retention, carried_out, open_retention, run_retention
from noetl.services.retention.plan import Plan
from noetl.services.retention.run import Changed, alone
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.pipelines import Piped

from .story_queries import some_queries
from .story_schedules import some_schedules

pytestmark = pytest.mark.service

AT_ONCE = {"as_of_days": 0, "generation_days": 0, "keep_generations": 0, "grace_hours": 0, "staging_days": 0}


def shop(query: str = "SELECT * FROM orders") -> str:
    return f"""
    name: shop
    jobs:
      - {{name: orders, operator: made, runtime: dispatcher, partition_by: [day]}}
      - name: clean
        operator: made
        runtime: dispatcher
        partition_by: [day]
        inputs: [orders]
        config: {{query: "{query}"}}
    publish: {{sales: clean}}
    """


def retention_of(pipelines: TestedPipelines) -> Retention:
    lake = Lake(str(pipelines.runtime.settings.runtime.home / "lake"))
    return open_retention(pipelines.runtime, pipelines.scope, lake)


def lake_files(pipelines: TestedPipelines) -> set[str]:
    lake = pipelines.runtime.settings.runtime.home / "lake"
    own = lake / pipelines.scope.tenant_id / pipelines.scope.organization_id
    return {path.relative_to(lake).as_posix() for path in own.rglob("*") if path.is_file()}


async def head(pipelines: TestedPipelines) -> Mark:
    return await pipelines.runtime.history.head()


async def named(pipelines: TestedPipelines, dataset: str, mark: Mark | None = None) -> set[str]:
    datasets = pipelines.pipelines.datasets
    view = await datasets.view(pipelines.scope, dataset, mark)
    return {entry.path for one in await datasets.manifests(pipelines.scope, view.partitions) for entry in one.files}


async def rows_at(pipelines: TestedPipelines, dataset: str, mark: Mark) -> list[dict[str, Any]]:
    return await pipelines.rows(await pipelines.pipelines.datasets.view(pipelines.scope, dataset, mark))


def removed(plan: Plan) -> dict[str, int]:
    return {kind: plan.removed(kind)[0] for kind in plan.kinds if plan.removed(kind)[0]}


async def test_by_default_nothing_that_was_committed_ever_goes(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    pipelines.give("orders", {"day": "1", "amount": 2})
    await pipelines.emit("shop", "orders")
    await pipelines.deploy(shop("SELECT day, amount * 2 AS amount FROM orders"))
    before = lake_files(pipelines)
    plan = await retention_of(pipelines).plan()
    assert removed(plan) == {}
    await carried_out(retention_of(pipelines))
    assert lake_files(pipelines) == before


async def test_superseded_versions_go_and_the_past_answers_from_when_on_it_is_retained(
    pipelines: TestedPipelines,
) -> None:
    """INV-81, INV-82."""
    pipelines.give("orders", {"day": "1", "amount": 1}, {"day": "2", "amount": 1})
    await pipelines.deploy(shop())
    past = await head(pipelines)
    old = await named(pipelines, "sales", past)
    pipelines.give("orders", {"day": "1", "amount": 5}, {"day": "2", "amount": 1})
    await pipelines.emit("shop", "orders")
    now = await head(pipelines)
    kept = await named(pipelines, "sales") | await named(pipelines, "shop.orders.0")
    done = await carried_out(retention_of(pipelines), changes=AT_ONCE)
    # `day=2` of the source was written again with the same rows, and what reads it was passed over.
    assert done.removed["versions"][0] == 3
    assert lake_files(pipelines) == kept
    assert await pipelines.rows("sales") == await rows_at(pipelines, "sales", now)
    with pytest.raises(HistoryNotKept, match=r"dataset sales is retained from 20.*partition day=1"):
        await rows_at(pipelines, "sales", past)
    assert old - kept, "the past had files of its own"
    assert removed(await retention_of(pipelines).plan(changes=AT_ONCE)) == {}, "a second run has nothing to do"


async def test_a_promise_keeps_what_was_visible_in_its_days(pipelines: TestedPipelines) -> None:
    """INV-82."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    past = await head(pipelines)
    pipelines.give("orders", {"day": "1", "amount": 2})
    await pipelines.emit("shop", "orders")
    await pipelines.deploy(shop("SELECT day, amount * 2 AS amount FROM orders"))
    await carried_out(retention_of(pipelines), changes=AT_ONCE | {"as_of_days": 1})
    assert await rows_at(pipelines, "sales", past) == [{"day": "1", "amount": 1}]


async def test_an_unused_generation_is_purged_and_never_served_again(pipelines: TestedPipelines) -> None:
    """INV-81, INV-83."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    first = await pipelines.deploy(shop())
    past = await head(pipelines)
    for factor in (2, 3):
        await pipelines.deploy(shop(f"SELECT day, amount * {factor} AS amount FROM orders"))
    plan = await retention_of(pipelines).plan(changes=AT_ONCE)
    (letting,) = plan.lettings
    assert (letting.purged, letting.generation.dataset) == (True, "sales")
    whys = {(line.kind, line.subject, line.action): line.why for line in plan.lines}
    assert whys["generations", "sales", "remove"] == "unused for 0 d"
    assert {line.why for line in plan.lines if line.kind == "generations" and line.subject == "sales"} == {
        "unused for 0 d", "current", "rollback target",
    }  # fmt: skip
    await carried_out(retention_of(pipelines), changes=AT_ONCE)
    assert not any(letting.generation.dataset_version in path for path in lake_files(pipelines))
    with pytest.raises(HistoryNotKept, match="was purged on"):
        await rows_at(pipelines, "sales", past)
    with pytest.raises(InputError, match="cannot serve readers again: retention let go of sales"):
        await pipelines.pipelines.activate("shop", first.dag_version_id, by="tests")
    again = await pipelines.deploy(shop())
    assert again.created
    assert again.dag_version_id != first.dag_version_id
    assert await pipelines.rows("sales") == [{"day": "1", "amount": 1}]


async def test_a_pin_keeps_exactly_what_was_visible_at_its_mark(pipelines: TestedPipelines) -> None:
    """INV-81."""
    pins = retention_of(pipelines).pins
    marks = []
    for amount in (1, 2, 3, 4):
        pipelines.give("orders", {"day": "1", "amount": amount}, {"day": "2", "amount": 0})
        await (pipelines.deploy(shop()) if amount == 1 else pipelines.emit("shop", "orders"))
        marks.append(await head(pipelines))
    pinned = await named(pipelines, "sales", marks[1])
    pin = await pins.pin_dataset(pipelines.scope, "sales", marks[1], note="audit", by="ann")
    plan = await retention_of(pipelines).plan(changes=AT_ONCE)
    assert f"pinned by {pin.pin_id[:8]} (audit)" in {line.why for line in plan.lines if line.subject == "sales"}
    await carried_out(retention_of(pipelines), changes=AT_ONCE)
    current = await named(pipelines, "sales") | await named(pipelines, "shop.orders.0")
    assert lake_files(pipelines) == pinned | current
    assert (await rows_at(pipelines, "sales", marks[1]))[0]["amount"] == 2
    for gone in (marks[0], marks[2]):
        with pytest.raises(HistoryNotKept):
            await rows_at(pipelines, "sales", gone)
    with pytest.raises(HistoryNotKept):
        await pins.pin_dataset(pipelines.scope, "sales", marks[0], by="ann")
    await pins.release(pipelines.scope, pin.pin_id[:8], by="ann")
    await carried_out(retention_of(pipelines), changes=AT_ONCE)
    assert lake_files(pipelines) == current


async def test_a_pinned_part_of_an_unused_generation_stays_and_the_rest_goes(pipelines: TestedPipelines) -> None:
    """INV-81, INV-83."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    first = await pipelines.deploy(shop())
    mark = await head(pipelines)
    pipelines.give("orders", {"day": "1", "amount": 2})
    await pipelines.emit("shop", "orders")
    pin = await retention_of(pipelines).pins.pin_mark(pipelines.scope, mark, by="ann")
    for factor in (2, 3):
        await pipelines.deploy(shop(f"SELECT day, amount * {factor} AS amount FROM orders"))
    await carried_out(retention_of(pipelines), changes=AT_ONCE)
    assert await rows_at(pipelines, "sales", mark) == [{"day": "1", "amount": 1}]
    with pytest.raises(InputError, match="cannot serve readers again"):
        await pipelines.pipelines.activate("shop", first.dag_version_id, by="tests")
    await retention_of(pipelines).pins.release(pipelines.scope, pin.pin_id, by="ann")
    done = await carried_out(retention_of(pipelines), changes=AT_ONCE)
    assert done.removed["generations"][0] == 1
    with pytest.raises(HistoryNotKept):
        await rows_at(pipelines, "sales", mark)


@pytest.mark.parametrize("move", ["pin", "rollback", "deploy"])
async def test_whatever_happens_after_the_plan_makes_it_void(pipelines: TestedPipelines, move: str) -> None:
    """INV-81."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    past = await head(pipelines)
    for factor in (2, 3):
        await pipelines.deploy(shop(f"SELECT day, amount * {factor} AS amount FROM orders"))
    retention = retention_of(pipelines)
    plan = await retention.plan(changes=AT_ONCE)
    assert plan.removes_data
    before = lake_files(pipelines)
    if move == "pin":
        await retention.pins.pin_dataset(pipelines.scope, "sales", past, by="ann")
    elif move == "rollback":
        await pipelines.rollback("shop")
    else:
        await pipelines.deploy(shop())
    with pytest.raises(Changed):
        await retention.run(plan)
    assert lake_files(pipelines) >= before


async def test_files_of_attempts_that_came_to_nothing_go_and_those_of_running_ones_stay(
    pipelines: TestedPipelines,
) -> None:
    """INV-81, INV-83."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    kept = lake_files(pipelines)
    stray = await left_over(pipelines, "sales")
    young = await retention_of(pipelines).plan(("staging",), AT_ONCE | {"staging_days": 1})
    assert removed(young) == {}
    assert {"too young", "named by a kept version"} <= {line.why for line in young.lines}
    gate = pipelines.gate("clean")
    pipelines.give("orders", {"day": "1", "amount": 2})
    run = await pipelines.start("shop", "orders")
    await gate.arrived()
    busy = await retention_of(pipelines).plan(("staging",), AT_ONCE)
    assert "an attempt that runs may name it" in {line.why for line in busy.lines}
    assert removed(busy) == {}
    gate.open()
    await pipelines.finished(run)
    assert removed(await retention_of(pipelines).plan(("staging",), AT_ONCE)) == {"staging": 2}
    done = await carried_out(retention_of(pipelines), ("staging",), AT_ONCE)
    assert done.removed == {"staging": (2, 2 * len(LEFT))}
    assert not stray.parent.exists()
    assert lake_files(pipelines) >= kept


LEFT = b"left over"


async def left_over(pipelines: TestedPipelines, dataset: str) -> Path:
    """Leave a file, with a checksum beside it, that an attempt which came to nothing wrote."""
    view = await pipelines.view(dataset)
    assert view.generation is not None
    lake = pipelines.runtime.settings.runtime.home / "lake"
    stray = lake / view.generation.storage_location / "day=1" / "commit=dead-1-x" / "part.parquet"
    stray.parent.mkdir(parents=True)
    for path in (stray, stray.with_name(f".{stray.name}.crc")):
        path.write_bytes(LEFT)
    return stray


async def test_an_attempt_that_lost_its_lease_cannot_commit_the_files_that_were_swept(
    pipelines: TestedPipelines,
) -> None:
    """INV-83: whoever may still commit keeps its files; whoever lost them can never commit."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    gate = pipelines.gate("orders")
    run = await pipelines.start("shop", "orders")
    grant = await gate.arrived()
    write = await TableWriter(pipelines.lake).write(
        Work(grant=grant, manifests={}, secrets={}), {0: pa.Table.from_pylist([{"day": "1", "amount": 9}])}
    )
    written = {entry.path for one in write.writes for entry in one.files}
    assert removed(await retention_of(pipelines).plan(("staging",), AT_ONCE)) == {}, "it runs, and its files stay"
    tasks = pipelines.engine.tasks(pipelines.scope)
    await tasks.fail(grant, TaskReport(status="error", error="its worker fell silent"))
    gate.open()
    assert (await pipelines.finished(run)).status == "completed"
    await carried_out(retention_of(pipelines), ("staging",), AT_ONCE)
    assert not written & lake_files(pipelines)
    with pytest.raises(LeaseLost):
        await tasks.complete(grant, TaskReport(status="ok", writes=write.writes))
    assert not written & await named(pipelines, "shop.orders.0")


async def test_a_commit_names_files_of_its_own_generation_alone(pipelines: TestedPipelines) -> None:
    """INV-83: nothing that one generation keeps can go with another."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    gate = pipelines.gate("orders")
    run = await pipelines.start("shop", "orders")
    grant = await gate.arrived()
    stranger = FileEntry(path=next(iter(await named(pipelines, "sales"))), bytes=1, rows=1, sha256="ab" * 32)
    (target,) = grant.targets
    write = PartitionWrite(output=0, partition_key="day=1", schema=target.schema, files=(stranger,))
    tasks = pipelines.engine.tasks(pipelines.scope)
    with pytest.raises(ReportRefused, match="the file does not lie in"):
        await tasks.complete(grant, TaskReport(status="ok", writes=(write,)))
    gate.open()
    assert (await pipelines.finished(run)).error is None


async def test_rows_of_history_go_after_an_event_and_replay_still_tells_the_same(pipelines: TestedPipelines) -> None:
    """INV-83."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    for factor in (2, 3):
        await pipelines.deploy(shop(f"SELECT day, amount * {factor} AS amount FROM orders"))
    rows_now = AT_ONCE | {"outbox_days": 0, "task_days": 0}
    await carried_out(retention_of(pipelines), ("generations",), rows_now)
    await until_delivered(pipelines)
    before = len(await pipelines.tasks())
    plan = await retention_of(pipelines).plan(("tasks", "outbox"), rows_now)
    assert removed(plan) == {"tasks": 1, "outbox": len(await pipelines.fetch("SELECT FROM noetl.outbox"))}
    done = await retention_of(pipelines).run(plan)
    assert {kind: counts[0] for kind, counts in done.removed.items()} == removed(plan)
    assert len(await pipelines.tasks()) == before - 1
    assert await pipelines.fetch("SELECT FROM noetl.outbox") == []
    assert await pipeline_differences(pipelines.runtime.database, pipelines.scope) == []
    await pipelines.emit("shop", "orders")
    assert await pipeline_differences(pipelines.runtime.database, pipelines.scope) == []


async def test_past_runs_of_schedules_and_the_record_of_queries_go_by_age(pipelines: TestedPipelines) -> None:
    """INV-83."""
    told = Piped(pipelines.scope)
    for change in (*some_schedules(told), *some_queries(told)):
        await pipelines.runtime.ledger.transact(hurried(change))
    retention, kinds = retention_of(pipelines), ("slots", "queries")
    young = await retention.plan(kinds, {"slot_days": 1, "query_days": 1})
    assert removed(young) == {}
    queries = len(await pipelines.fetch("SELECT FROM noetl.query_audit"))
    plan = await retention.plan(kinds, {"slot_days": 0, "query_days": 0})
    assert queries
    assert removed(plan) == {"slots": 1, "queries": queries}
    await retention.run(plan)
    assert await pipelines.fetch("SELECT FROM noetl.query_audit") == []
    assert await pipelines.fetch("SELECT FROM noetl.cron_slot WHERE status <> 'RUNNING'") == []
    assert await pipeline_differences(pipelines.runtime.database, pipelines.scope) == []


def hurried(change: Transition) -> Transition:
    """Let schedules catch up with nothing, so that a slot counts as past as soon as it has ended."""
    drafts = [
        msgspec.structs.replace(draft, meta={**draft.meta, "catch_up_seconds": 0})
        if "catch_up_seconds" in draft.meta
        else draft
        for draft in change.appends[0].drafts
    ]
    return msgspec.structs.replace(change, appends=(change.appends[0]._replace(drafts=drafts),))


async def until_delivered(pipelines: TestedPipelines) -> None:
    async def look() -> bool:
        return not await pipelines.fetch("SELECT FROM noetl.outbox WHERE status <> 'Done'")

    await until(look, "an outbox that is done")


async def test_nobody_deletes_rows_that_no_event_allows(pipelines: TestedPipelines) -> None:
    """INV-83."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    for kind in ("outbox", "tasks", "queries"):
        (row,) = await pipelines.fetch("SELECT noetl.sweep_rows($1, 1000)", kind)
        assert row[0] == 0


async def test_a_task_whose_inputs_are_gone_is_not_tried_again(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())

    def give(work: Work) -> list[dict[str, Any]]:
        return [{"day": "1", "amount": 2}]

    pipelines.made.given["orders"] = give
    gate = pipelines.gate("clean")
    run = await pipelines.start("shop", "orders")
    grant = await gate.arrived()
    await pipelines.engine.by_hand.cancel(pipelines.scope, grant.lease.task_id, reason="enough", by="tests")
    await pipelines.engine.tasks(pipelines.scope).heartbeat([grant.lease])
    gate.open()
    await pipelines.finished(run)
    pipelines.give("orders", {"day": "1", "amount": 3})
    await pipelines.emit("shop", "orders")
    await carried_out(retention_of(pipelines), changes=AT_ONCE)
    with pytest.raises(HistoryNotKept, match="partition day=1 at version 2, which it reads"):
        await pipelines.engine.by_hand.retry(pipelines.scope, grant.lease.task_id, by="tests")


async def test_a_lake_that_does_not_answer_is_left_alone(pipelines: TestedPipelines, tmp_path: Path) -> None:
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    runtime, scope = pipelines.runtime, pipelines.scope
    for lake in (
        Lake(str(tmp_path / "nowhere")),
        Lake(
            "s3://lost/",
            {
                "endpoint": "http://127.0.0.1:1",
                "allow_http": "true",
                "region": "r",
                "access_key_id": "a",
                "secret_access_key": "b",
                "timeout": "1s",
            },
        ),
    ):
        with pytest.raises(Unavailable):
            await open_retention(runtime, scope, lake).plan(changes=AT_ONCE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Unavailable, match="the lake has no file of dataset"):
        await open_retention(runtime, scope, Lake(str(tmp_path / "empty"))).plan(changes=AT_ONCE)


async def test_organizations_never_touch_each_other(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    """INV-22, INV-83."""
    for one in (pipelines, other_pipelines):
        one.give("orders", {"day": "1", "amount": 1})
        await one.deploy(shop())
        one.give("orders", {"day": "1", "amount": 2})
        await one.emit("shop", "orders")
    theirs = lake_files(other_pipelines)
    await retention_of(pipelines).pins.set_policy(pipelines.scope, {"as_of_days": "0"}, by="ann")
    assert (await retention_of(other_pipelines).policy()).as_of_days is None
    done = await carried_out(retention_of(pipelines), changes=AT_ONCE)
    assert done.removed["versions"][0] == 2
    assert lake_files(other_pipelines) == theirs
    assert await other_pipelines.rows("sales") == [{"day": "1", "amount": 2}]
    assert await pipeline_differences(pipelines.runtime.database, other_pipelines.scope) == []


async def test_only_one_process_runs_retention_in_an_organization(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    async with alone(pipelines.runtime.database, pipelines.scope):
        with pytest.raises(Conflict, match="another process runs retention"):
            await carried_out(retention_of(pipelines), ("staging",))
        await carried_out(retention_of(other_pipelines), ("staging",))


async def test_a_schedule_runs_retention_only_where_the_policy_says_so(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    await until_delivered(pipelines)
    assert (await run_retention(pipelines.runtime, pipelines.scope))["ran"] is False
    changes = {"automatic": "true", "outbox_days": "0"}
    await retention_of(pipelines).pins.set_policy(pipelines.scope, changes, by="ann")
    done = await run_retention(pipelines.runtime, pipelines.scope)
    assert done["removed"]["outbox"][0] > 0
    assert await pipelines.fetch("SELECT FROM noetl.outbox") == []


async def test_unpacked_code_goes_when_no_version_in_use_has_it(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", {"day": "1", "amount": 1})
    deployed = await pipelines.deploy(shop())
    version = await pipelines.pipelines.dags.version(pipelines.scope, "shop", deployed.dag_version_id)
    above = pipelines.runtime.settings.runtime.home / "spark" / "bundles"
    stray = "ab" * 32
    for digest in (stray, version.code_digest or "cd" * 32):
        (above / digest).mkdir(parents=True)
        (above / digest / "orders.py").write_text("x = 1\n")
        (above / f"{digest}.zip").write_bytes(b"zip")
    (above / "not-a-digest").mkdir()
    retention, kinds = retention_of(pipelines), ("bundles",)
    assert removed(await retention.plan(kinds, {"bundle_days": 1})) == {}
    plan = await retention.plan(kinds, {"bundle_days": 0})
    assert stray in plan.bundles
    assert version.code_digest not in plan.bundles
    await retention.run(plan)
    assert not (above / stray).exists()
    assert not (above / f"{stray}.zip").exists()
    assert (above / "not-a-digest").exists()


async def test_a_task_that_a_rollback_brings_back_still_finds_what_it_reads(pipelines: TestedPipelines) -> None:
    """INV-81."""
    pipelines.give("orders", {"day": "1", "amount": 1})
    await pipelines.deploy(shop())
    gate = pipelines.gate("clean", query="SELECT * FROM orders")
    pipelines.give("orders", {"day": "1", "amount": 2})
    run = await pipelines.start("shop", "orders")
    held = await gate.arrived()
    second = await pipelines.begin(shop("SELECT day, amount * 2 AS amount FROM orders"))
    await pipelines.built(second)
    await pipelines.activate(second)
    await pipelines.engine.tasks(pipelines.scope).heartbeat([held.lease])
    gate.open()
    await pipelines.finished(run)
    pipelines.give("orders", {"day": "1", "amount": 3})
    await pipelines.emit("shop", "orders")
    read = {(part.partition_key, part.version) for one in held.inputs for part in one.parts}
    plan = await retention_of(pipelines).plan(changes=AT_ONCE)
    going = {version for trim in plan.trims for version in trim.versions if trim.generation.dataset == "shop.orders.0"}
    assert read == {("day=1", 2)}
    assert not read & going
    assert ("day=1", 1) in going
    await retention_of(pipelines).run(plan)
    await pipelines.rollback("shop")
    assert await pipelines.rows("sales") == [{"day": "1", "amount": 3}]
