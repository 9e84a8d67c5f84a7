"""OpenLineage events: sound by the standard, the same however often they are sent, and none is ever left out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import InputError, Unavailable
from noetl.pipelines.worker.in_process import OperatorFailed
from noetl.services.openlineage.emitter import Emitter
from noetl.services.openlineage.fact_reader import Gathering
from noetl.services.openlineage.facts import run_id
from noetl.services.openlineage.transports import FileTransport, HttpTransport, Transport
from noetl.spark.drivers.protocol import Work
from noetl.testing.engines.pipelines import Row, TestedPipelines

from ..pipelines.shop import order, shop
from .conftest import Told
from .openlineage_form import assert_sound
from .receiver import receiving

pytestmark = pytest.mark.service


def emitter(told: Told, transport: Transport) -> Emitter:
    tested = told.tested
    runtime = tested.runtime
    gathering = Gathering(tested.scope, runtime.database, told.reader, "file:///lake")
    return Emitter(tested.scope, runtime.database, runtime.history, gathering, transport)


@pytest.fixture
async def built(tested: TestedPipelines) -> TestedPipelines:
    """A shop that was built."""
    tested.give("orders", order(1, 10), order(2, 20))
    await tested.deploy(shop())
    return tested


async def happened(tested: TestedPipelines) -> set[tuple[str, str]]:
    """Return every attempt that began, every one that was completed and every one that was overtaken."""
    rows = await tested.fetch(
        "SELECT substr(stream_id, 6) AS task, (meta ->> 'attempt')::int AS attempt, event_type FROM noetl.event"
        " WHERE event_type IN ('task.claimed', 'task.completed', 'task.skipped') AND meta ->> 'attempt' IS NOT NULL"
    )
    states = {"task.claimed": "START", "task.completed": "COMPLETE", "task.skipped": "ABORT"}
    return {(run_id(tested.scope, row["task"], row["attempt"]), states[row["event_type"]]) for row in rows}


def told_of(events: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["run"]["runId"], one["eventType"]) for one in events}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_build_is_told_attempt_by_attempt(built: TestedPipelines, told: Told, tmp_path: Path) -> None:
    """INV-75."""
    path = tmp_path / "told" / "events.jsonl"
    sent = await emitter(told, FileTransport(path)).emit()
    events = read(path)
    for event in events:
        assert_sound(event)
    assert len(events) == sent
    assert told_of(events) == await happened(built)
    assert {event["job"]["name"] for event in events} == {"shop.orders", "shop.clean", "shop.totals"}
    for run in {event["run"]["runId"] for event in events}:
        began, ended = [event["eventType"] for event in events if event["run"]["runId"] == run]
        # The totals of one day may be overtaken by those of both.
        assert (began, ended) in {("START", "COMPLETE"), ("START", "ABORT")}
    assert {event["job"]["name"] for event in events if event["eventType"] == "ABORT"} <= {"shop.totals"}
    start = next(event for event in events if event["eventType"] == "START")
    assert start.get("outputs", []) == []
    assert start["job"]["namespace"] == f"noetl/{built.scope.tenant_id}/{built.scope.organization_id}"


async def test_a_finished_attempt_tells_versions_columns_lineage_and_counts(
    built: TestedPipelines, told: Told, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    await emitter(told, FileTransport(path)).emit()
    done = [one for one in read(path) if one["job"]["name"] == "shop.totals" and one["eventType"] == "COMPLETE"][-1]
    view = await built.view("totals")
    assert view.generation is not None
    (output,) = done["outputs"]
    assert output["name"] == "totals"
    assert output["facets"]["version"]["datasetVersion"] == view.generation.dataset_version
    assert output["facets"]["dataSource"]["uri"] == f"file:///lake/{view.generation.storage_location}"
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["amount", "orders", "factor"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    lineage = output["facets"]["columnLineage"]
    (source,) = lineage["fields"]["amount"]["inputFields"]
    assert (source["name"], source["field"]) == ("clean", "amount")
    assert source["transformations"][0]["subtype"] == "AGGREGATION"
    assert {one["field"] for one in lineage["fields"]["orders"]["inputFields"]} == {"day", "amount", "factor"}
    assert [one["name"] for one in done["inputs"]] == ["clean"]
    assert done["run"]["facets"]["parent"]["job"]["name"] == "shop"


async def test_an_attempt_that_fails_tells_why(tested: TestedPipelines, told: Told, tmp_path: Path) -> None:
    tries: list[int] = []

    def give(work: Work) -> list[Row]:
        tries.append(work.grant.lease.attempt)
        if len(tries) == 1:
            raise OperatorFailed("the shop is closed")
        return [order(1, 10)]

    tested.made.given["orders"] = give
    await tested.deploy(shop(orders=", max_attempts: 3"))
    path = tmp_path / "events.jsonl"
    await emitter(told, FileTransport(path)).emit()
    events = [one for one in read(path) if one["job"]["name"] == "shop.orders"]
    assert [one["eventType"] for one in events] == ["START", "FAIL", "START", "COMPLETE"]
    assert len({one["run"]["runId"] for one in events}) == 2
    assert "the shop is closed" in events[1]["run"]["facets"]["errorMessage"]["message"]
    for event in events:
        assert_sound(event)


async def test_an_attempt_that_is_overtaken_tells_that_it_came_to_nothing(
    tested: TestedPipelines, told: Told, tmp_path: Path
) -> None:
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    tested.give("orders", order(1, 11))
    gate = tested.gate("totals")
    first = await tested.start("shop", "orders")
    held = await gate.arrived()
    tested.made.gates.clear()
    tested.give("orders", order(1, 12))
    await tested.emit("shop", "orders")
    gate.open()
    await tested.finished(first)
    path = tmp_path / "events.jsonl"
    await emitter(told, FileTransport(path)).emit()
    overtaken = run_id(tested.scope, held.lease.task_id, held.lease.attempt)
    events = [one for one in read(path) if one["run"]["runId"] == overtaken]
    assert [one["eventType"] for one in events] == ["START", "ABORT"]
    assert events[1].get("outputs", []) == []
    for event in events:
        assert_sound(event)


async def test_what_was_told_is_not_told_again_and_what_follows_is(
    built: TestedPipelines, told: Told, tmp_path: Path
) -> None:
    """INV-75."""
    path = tmp_path / "events.jsonl"
    first = await emitter(told, FileTransport(path)).emit()
    assert await emitter(told, FileTransport(path)).emit() == 0
    built.give("orders", order(1, 10), order(3, 30))
    await built.emit("shop", "orders")
    more = await emitter(told, FileTransport(path)).emit()
    assert more > 0
    events = read(path)
    assert len(events) == first + more
    assert told_of(events) == await happened(built)


async def test_another_receiver_is_told_from_the_beginning(built: TestedPipelines, told: Told, tmp_path: Path) -> None:
    first = await emitter(told, FileTransport(tmp_path / "one.jsonl")).emit()
    assert await emitter(told, FileTransport(tmp_path / "two.jsonl")).emit() == first


async def test_two_that_tell_at_once_leave_nothing_out(built: TestedPipelines, told: Told, tmp_path: Path) -> None:
    """INV-75."""
    path = tmp_path / "events.jsonl"
    await asyncio.gather(*(emitter(told, FileTransport(path)).emit() for _ in range(2)))
    assert told_of(read(path)) == await happened(built)


async def test_a_server_that_fails_at_first_gets_everything_in_the_end(built: TestedPipelines, told: Told) -> None:
    """INV-75."""
    async with receiving([503, 429, 500]) as receiver:
        transport = HttpTransport(receiver.url, "s3cret")
        for _ in range(3):
            with pytest.raises(Unavailable, match="not now"):
                await emitter(told, transport).emit()
        await emitter(told, transport).emit()
        await transport.close()
    assert receiver.tokens == {"Bearer s3cret"}
    assert told_of(receiver.events) == await happened(built)
    for event in receiver.events:
        assert_sound(event)


async def test_a_server_that_refuses_is_named_and_nothing_is_passed_over(built: TestedPipelines, told: Told) -> None:
    """INV-75."""
    async with receiving([422]) as receiver:
        transport = HttpTransport(f"{receiver.url}?key=hidden")
        with pytest.raises(InputError, match="answered 422: not now") as refused:
            await emitter(told, transport).emit()
        assert "hidden" not in refused.value.message
        await emitter(told, transport).emit()
        await transport.close()
    assert told_of(receiver.events) == await happened(built)


async def test_a_server_that_is_away_is_named(told: Told, built: TestedPipelines) -> None:
    async with receiving() as receiver:
        url = receiver.url
    transport = HttpTransport(url)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await emitter(told, transport).emit()
    await transport.close()


async def test_a_line_that_was_cut_by_a_crash_does_not_spoil_the_next(
    built: TestedPipelines, told: Told, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"eventType": "STA')
    await emitter(told, FileTransport(path)).emit()
    cut, *lines = path.read_text().splitlines()
    assert cut == '{"eventType": "STA'
    assert told_of([json.loads(line) for line in lines]) == await happened(built)
