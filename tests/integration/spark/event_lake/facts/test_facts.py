"""Facts say what the events say: held against projections, rows of tasks and a second telling in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from tests.integration.spark.event_lake.facts.made_events import EMISSION, RUN, T1, T2, T3, made_events
from tests.integration.spark.event_lake.facts.truths import Row, attempts, counted, day_of, folded

from noetl.engine.plan.state import State
from noetl.model.event import Event
from noetl.model.stream import SHARD_COUNT
from noetl.spark.event_lake.facts.audit import is_routine
from noetl.spark.event_lake.facts.catalogue import FACTS
from noetl.spark.event_lake.facts.refresh import facts_of, touched_days
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

PLAYBOOK = playbook("""
workflow:
  - step: each
    loop: {in: "{{ range(7) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 3}}}
    tool:
      kind: python
      input: {n: "{{ iter.n }}"}
      code: "result = 6 / (n - 5)"
      spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: continue}}]}}
    next: {arcs: [{step: shards}]}
  - step: shards
    loop: {in: "{{ [1, 0, 2] }}", iterator: n, spec: {mode: fanout, max_in_flight: 2}}
    tool: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = 1 / n"}
    next: {arcs: [{step: child, when: "{{ true }}"}, {step: never, when: "{{ false }}"}]}
  - step: never
    tool: {kind: noop}
  - step: child
    tool: {kind: playbook, path: tests/child}
""")
CHILD = playbook('workflow: [{step: fails, tool: {kind: python, code: "raise ValueError(7)"}}]', "tests/child")
DAG = """
    name: shop
    jobs:
      - {name: orders, operator: made, runtime: dispatcher, partition_by: [day], unique_key: [id], max_attempts: 2}
      - {name: totals, inputs: [orders], operator: made, runtime: dispatcher, config: {query: "SELECT day, count(*) AS n FROM orders GROUP BY 1"}}
    publish: {orders: orders}
"""

Lake = Callable[[Iterable[Event]], DataFrame]
Facts = dict[str, list[Row]]


def collected(lake: DataFrame, days: Iterable[date]) -> Facts:
    with facts_of(lake, list(days)) as made:
        return {name: [row.asDict() for row in rows.collect()] for name, rows in made.items()}


def only(rows: Iterable[Row], **wanted: Any) -> Row:
    (found,) = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return found


async def all_events(playbooks: Playbooks) -> list[Event]:
    history = playbooks.runtime.history
    return [event for shard in range(SHARD_COUNT) async for event in history.read_shard(shard, scope=playbooks.scope)]


async def a_day_of_work(playbooks: Playbooks, pipelines: TestedPipelines) -> State:
    await playbooks.register(CHILD)
    failed = await playbooks.run(PLAYBOOK)
    pipelines.give("orders", {"id": 1, "day": "a"}, {"id": 2, "day": "b"})
    await pipelines.deploy(DAG)
    pipelines.give("orders", {"id": 2, "day": "b"}, {"id": 3, "day": "b"})
    assert (await pipelines.emit("shop", "orders")).status == "completed"
    return failed


def utc(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_facts_equal_projections_tasks_and_what_the_events_say(
    playbooks: Playbooks, pipelines: TestedPipelines, lake: Lake
) -> None:
    """INV-92."""
    failed = await a_day_of_work(playbooks, pipelines)
    events, made = await all_events(playbooks), made_events()
    rows = lake([*events, *made])
    days = await asyncio.to_thread(touched_days, rows)
    assert days == sorted({day_of(event) for event in [*events, *made]})

    facts = await asyncio.to_thread(collected, rows, days)

    real = {name: [row for row in found if row["organization_id"] != "made"] for name, found in facts.items()}
    by_hand = {name: [row for row in found if row["organization_id"] == "made"] for name, found in facts.items()}
    executions_are_those_of_the_projection(real, events)
    frames_and_loops_are_those_of_the_projections(real, events)
    attempts_are_those_of_the_events(real, events)
    metrics_are_those_of_the_events(real, events)
    await tasks_are_those_of_the_rows(real, pipelines)
    costs_count_everything_once(real, events, failed)
    audited = [(row["shard"], row["position"]) for row in real["noetl_audit"]]
    assert sorted(audited) == sorted((one.shard, one.position) for one in events if not is_routine(one.event_type))
    deployed = [row for row in real["noetl_audit"] if row["subject"] == "dag/shop"]
    ready = next(row for row in deployed if row["event_type"] == "dag.ready")
    assert ready["actor"] == f"execution/{ready['execution_id']}"
    assert {row["actor"] for row in deployed if row is not ready} == {"tests"}
    what_seldom_happens_is_told(by_hand)
    what_was_used_is_told(by_hand)
    # Facts of one day are the same whether others are computed beside it or not.
    first = date(2026, 3, 1)
    alone = await asyncio.to_thread(collected, lake([*events, *made]), [first])
    assert {name: sorted(map(str, rows)) for name, rows in alone.items()} == {
        name: sorted(str(row) for row in rows if row["day"] == first) for name, rows in facts.items()
    }


def executions_are_those_of_the_projection(facts: Facts, events: list[Event]) -> None:
    expected = {
        row["execution_id"]: (row["status"], row["events"], utc(row["start_time"]), utc(row["end_time"]), row["error"],
                              row["parent_execution_id"], row["catalog_id"], row["last_event_type"])
        for row in folded(events)["execution"]
    }  # fmt: skip
    found = {
        str(row["execution_id"]): (row["status"], row["events"], row["started_at"], row["ended_at"], row["error"],
                                   row["parent_execution_id"] and str(row["parent_execution_id"]), row["catalog_id"],
                                   row["last_event_type"])
        for row in facts["noetl_executions"]
    }  # fmt: skip
    assert found == expected
    assert {row["status"] for row in facts["noetl_executions"]} >= {"COMPLETED", "FAILED"}
    assert {row["kind"] for row in facts["noetl_executions"]} >= {"playbook", "deploy", "emission"}


def frames_and_loops_are_those_of_the_projections(facts: Facts, events: list[Event]) -> None:
    rows = folded(events)
    names = ("status", "attempts", "row_count", "failed_count", "error")
    expected = {row["frame_id"]: (*(row[name] for name in names), utc(row["completed_at"])) for row in rows["frame"]}
    found = {
        str(row["frame_id"]): (*(row[name] for name in ("status", "attempts", "rows", "rows_failed", "error")), row["ended_at"])
        for row in facts["noetl_frames"] if row["kind"] == "frame"
    }  # fmt: skip
    assert found == expected
    assert len(found) == 3
    loops = {row["loop_id"]: (row["total"], row["done"], row["failed"]) for row in rows["loop"]}
    loops |= {row["loop_id"]: (row["total_shards"], row["done"], row["failed"]) for row in rows["fanout"]}
    steps = {
        str(row["loop_id"]): (row["rows"], row["rows_done"], row["rows_failed"])
        for row in facts["noetl_steps"] if row["loop_id"] is not None
    }  # fmt: skip
    assert steps == loops
    assert {row["step"]: row["status"] for row in facts["noetl_steps"]} == {
        "each": "completed", "shards": "completed", "child": "failed", "fails": "failed",
    }  # fmt: skip


def attempts_are_those_of_the_events(facts: Facts, events: list[Event]) -> None:
    expected = {
        key: (one["result"], one["started_at"].replace(tzinfo=None), one["ms"] and round(one["ms"] / 1000, 6))
        for key, one in attempts(events).items()
    }
    found = {
        (row["kind"], f"{row['execution_id']}/{row['subject']}", row["attempt"]): (
            row["result"], row["started_at"], row["tool_seconds"] and round(row["tool_seconds"], 6))
        for row in facts["noetl_attempts"]
    }  # fmt: skip
    assert found == expected
    for row in facts["noetl_attempts"]:
        if row["tool_seconds"] is not None:
            worked = row["tool_seconds"] + row["engine_seconds"]
            assert worked == pytest.approx(max(row["held_seconds"], row["tool_seconds"]))


def metrics_are_those_of_the_events(facts: Facts, events: list[Event]) -> None:
    for row in facts["noetl_metrics"]:
        expected = counted(events, row["execution_id"])
        assert {name: row[name] for name in expected} == expected


async def tasks_are_those_of_the_rows(facts: Facts, pipelines: TestedPipelines) -> None:
    expected = {
        row["task_id"]: (row["status"], row["attempt"], row["job"], row["partition_key"], row["error"])
        for row in await pipelines.fetch("SELECT task_id::text AS task_id, status, attempt, job, partition_key, error FROM noetl.task")
    }  # fmt: skip
    names = ("status", "attempt", "job", "partition_key", "error")
    assert {row["task_id"]: tuple(row[name] for name in names) for row in facts["noetl_tasks"]} == expected
    assert len(expected) >= 4


def costs_count_everything_once(facts: Facts, events: list[Event], failed: State) -> None:
    costs, measured = facts["noetl_costs"], [one["ms"] or 0 for one in attempts(events).values()]
    assert sum(row["tool_seconds"] for row in costs) == pytest.approx(sum(measured) / 1000)
    assert sum(row["executions"] for row in costs) == 2
    assert sum(row["tasks"] for row in costs) == pytest.approx(len(facts["noetl_tasks"]))
    parent = only(costs, playbook=failed.path)
    loops = [*folded(events)["loop"], *folded(events)["fanout"]]
    assert (parent["rows"], parent["rows_failed"]) == (sum(one["done"] for one in loops), 1)
    # 2 rows at the deploy, and of the 2 of the emission the one whose key did not stand yet.
    assert sum(row["rows"] for row in costs if row["dataset"] == "shop.orders") == 3


def what_seldom_happens_is_told(facts: Facts) -> None:
    run = only(facts["noetl_executions"], execution_id=RUN)
    assert (run["status"], run["events"], run["seconds"], run["requested_by"]) == ("CANCELLED", 22, 19.0, "eva")
    frame = only(facts["noetl_frames"], frame_id=9)
    assert (frame["status"], frame["attempts"], frame["lost"], frame["rows"], frame["rows_failed"]) == (
        "COMMITTED", 3, 1, 10, 1,
    )  # fmt: skip
    assert (frame["worker"], frame["input_bytes"], frame["output_bytes"], frame["error"]) == ("w2", 100, 50, None)
    tried = {(row["kind"], row["subject"], row["attempt"]): row for row in facts["noetl_attempts"]}
    assert {key: row["result"] for key, row in tried.items() if key[0] != "task"} == {
        ("command", "lo/ad/1/0", 1): "abandoned", ("command", "lo/ad/1/0", 2): "completed",
        ("command", "wait/1/0", 1): "abandoned", ("frame", "9", 1): "abandoned", ("frame", "9", 2): "failed",
        ("frame", "9", 3): "completed",
    }  # fmt: skip
    on_spark = tried["command", "lo/ad/1/0", 2]
    assert (on_spark["spark_seconds"], on_spark["tool_seconds"], on_spark["held_seconds"]) == (4.2, None, 4.5)
    assert (on_spark["application_id"], on_spark["step"]) == ("app-7", "load")
    step, left = only(facts["noetl_steps"], step="lo/ad"), only(facts["noetl_steps"], step="wait")
    assert (step["status"], step["attempts"], step["rows_done"], step["rows_failed"]) == ("completed", 2, 9, 1)
    assert (left["status"], left["seconds"], left["tool_kind"]) == ("stopped", 9.0, "http")
    assert tried["task", T1, 1]["spark_seconds"] == 2.0
    assert (tried["task", T3, 1]["spark_seconds"], tried["task", T3, 1]["error_kind"]) == (2.0, "defect")
    assert tried["task", T3, 2]["result"] == "running"
    assert {row["task_id"]: row["status"] for row in facts["noetl_tasks"]} == {
        T1: "Completed", T2: "Completed", T3: "Running",
    }  # fmt: skip
    assert only(facts["noetl_metrics"], execution_id=RUN)["recoveries"] == 3


def what_was_used_is_told(facts: Facts) -> None:
    costs = facts["noetl_costs"]
    ran = only(costs, kind="playbook")
    assert (ran["playbook"], ran["rows"], ran["rows_failed"], ran["bytes"]) == ("etl/load", 9, 1, 150)
    assert (ran["spark_seconds"], ran["tool_seconds"]) == (4.2, 0.0)
    assert ran["unmeasured_seconds"] == 4.0 + 9.0
    one, two, none = (only(costs, kind="dataset", dataset_uuid=name) for name in ("u1", "u2", None))
    assert [(row["rows"], row["bytes"]) for row in (one, two, none)] == [(25, 250), (4, 40), (0, 0)]
    # T2 wrote to both datasets, so that each bears half of it; T3 came to nothing yet.
    assert [row["spark_seconds"] for row in (one, two, none)] == [3.0, 1.0, 2.0]
    assert [row["tasks"] for row in (one, two, none)] == [1.5, 0.5, 1.0]
    asked = only(costs, kind="query")
    assert (asked["queries"], asked["query_seconds"], asked["spark_seconds"], asked["rows"]) == (2, 0.25, 2.0, 10)
    audit = {row["event_type"]: row for row in facts["noetl_audit"]}
    assert set(audit) == {
        "execution.requested", "execution.cancelled", "dag.rolled_back", "dataset.registered", "user.added",
        "query.answered", "business.order.placed",
    }  # fmt: skip
    assert (audit["execution.cancelled"]["actor"], audit["execution.cancelled"]["error"]) == ("eva", "enough")
    assert (audit["dag.rolled_back"]["actor"], audit["dag.rolled_back"]["about"]) == ("cli/eva", "shop")
    assert (audit["user.added"]["actor"], audit["user.added"]["about"]) == (None, "u-9")
    assert all(row["sentence"] for row in audit.values())
    named = only(facts["noetl_datasets"], dataset_uuid="u1")
    assert (named["name"], named["published"], named["output"]) == ("sales", True, 0)
    assert only(facts["noetl_executions"], execution_id=EMISSION)["status"] == "RUNNING"


def test_every_column_is_told_once_with_a_sentence_and_in_the_documents() -> None:
    for fact in FACTS:
        names = [column.name for column in fact.columns]
        assert len(set(names)) == len(names)
        assert names[-1] == "day"
        assert all(column.type and column.sentence.endswith(".") for column in fact.columns), fact.name
    assert {fact.name for fact in FACTS} == {
        f"noetl_{one}"
        for one in ["executions", "steps", "frames", "tasks", "attempts", "audit", "costs", "metrics", "datasets"]
    }  # fmt: skip
    page = (Path(__file__).parents[5] / "docs" / "facts.md").read_text()
    for fact in FACTS:
        rows = "\n".join(f"| `{one.name}` | {one.type} | {one.sentence} |" for one in fact.columns)
        told = f"### {fact.name}\n\n{fact.sentence}\n\n| column | type | says |\n|---|---|---|\n{rows}\n"
        assert told in page, f"docs/facts.md should say:\n{told}"
