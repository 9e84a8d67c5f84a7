"""The fold of pipelines: no order between streams matters, settled rows may go, and runs of DAGs read like executions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.properties.histories import FIRST_ID, Chronicle

from noetl.kernel.projections.folds.execution import EXECUTION
from noetl.kernel.projections.folds.organization.fold import Pipelines
from noetl.kernel.projections.folds.organization.tables import KEYS, Table, outbox_id
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.event import Event

ID = "6b2a7c1e-0000-4000-8000-00000000000{}".format
TASK = {
    "job_id": ID(1),
    "dag_version_id": ID(2),
    "dag": "shop",
    "job": "clean",
    "generation": ID(3),
    "partition_key": "all",
    "runtime": "spark",
    "max_attempts": 3,
    "lease_seconds": 30,
}
CURSOR = {"dataset_uuid": ID(7), "dataset_version": ID(8), "consumer": ID(3), "partition_key": "all"}


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


def task(chronicle: Chronicle, number: int, kind: str, meta: dict[str, Any], **fields: Any) -> None:
    path = f"task/{ID(number)}"
    chronicle.add(kind, path=path, node_name="clean", meta=meta, **fields)


def some_tasks(chronicle: Chronicle) -> list[Event]:
    """Record tasks that end differently and partitions they commit."""
    for number in (4, 5, 6):
        task(chronicle, number, "task.created", {"task_id": ID(number), "dedupe_key": str(number), **TASK})
        lease = {"attempt": 1, "worker": "w", "lease_token": ID(9), "lease_seconds": 30}
        task(chronicle, number, "task.claimed", lease)
        done = {"cursors": [{**CURSOR, "version": number}]}
        ending = {4: "task.completed", 5: "task.attempt_failed", 6: "task.completed"}[number]
        task(chronicle, number, ending, {"attempt": 1}, context=done)
        gone = {"dataset_uuid": ID(7), "dataset_version": ID(8), "partition_key": "all", "task_id": ID(number)}
        chronicle.add("partition.dropped", path=f"partition/{ID(7)}", meta={**gone, "version": number - 3})
    return chronicle.events


def folded(events: list[Event]) -> dict[str, Table]:
    pipelines = Pipelines()
    for event in events:
        pipelines.apply(event)
    return pipelines.tables()


def test_streams_may_come_in_any_order(chronicle: Chronicle) -> None:
    events = some_tasks(chronicle)
    streams = sorted({event.stream_id for event in events})
    for seed in range(10):
        random.Random(seed).shuffle(streams)
        by_stream = [event for name in streams for event in events if event.stream_id == name]
        assert folded(by_stream) == folded(events)


def test_settled_rows_and_what_stays_are_all_rows(chronicle: Chronicle) -> None:
    events = some_tasks(chronicle)
    pipelines, found = Pipelines(), {name: dict[str, Any]() for name in KEYS}
    last = None
    for event in sorted(events, key=lambda one: (one.stream_id, one.stream_version)):
        if event.stream_id != last:
            for table, key, row in pipelines.settled():
                assert key not in found[table]
                found[table][key] = row
        last = event.stream_id
        pipelines.apply(event)
    for name, table in pipelines.tables().items():
        found[name] |= table
    assert found == folded(events)
    assert [row["version"] for row in found["dataset_cursor"].values()] == [6]


def test_events_of_other_things_change_nothing(chronicle: Chronicle) -> None:
    chronicle.add("execution.requested")
    chronicle.add("step.entered", node_name="a")
    assert not any(folded(chronicle.events).values())


def test_the_id_of_what_has_to_follow_is_the_beginning_of_a_digest() -> None:
    assert outbox_id("route:a:all:1") == "4531ca4c-7cff-c0fd-f2d0-2c2b3574a204"


@pytest.mark.parametrize("kind", ["deploy", "emission"])
def test_the_run_of_a_dag_runs_from_the_moment_it_is_asked_for(chronicle: Chronicle, kind: str) -> None:
    chronicle.add("execution.requested", meta={"path": "dag/shop", "kind": kind})
    row = run(chronicle)
    assert (row["status"], row["start_time"], row["end_time"]) == ("RUNNING", "2026-05-16T12:00:00.250000Z", None)
    assert row["state"]["run"] == {"kind": kind, "path": "dag/shop"}
    chronicle.add("execution.completed")
    assert run(chronicle)["status"] == "COMPLETED"


def test_tasks_on_their_own_streams_are_not_counted_as_events_of_their_run(chronicle: Chronicle) -> None:
    chronicle.add("execution.requested", meta={"path": "dag/shop", "kind": "deploy"})
    some_tasks(chronicle)
    assert run(chronicle)["events"] == 1


def run(chronicle: Chronicle) -> dict[str, Any]:
    state = FoldState([EXECUTION], keep_ended=True)
    state.apply_many(chronicle.events)
    (found,) = state.rows("execution")
    assert found.row["execution_id"] == str(FIRST_ID)
    return found.row
