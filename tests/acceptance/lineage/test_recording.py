"""What tasks tell about lineage is recorded with their commit: once, when it is new, and never forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl.model.lineage import lineage_of
from noetl.model.task import TaskTarget
from noetl.testing.engines.pipelines import TestedPipelines

from ..pipelines.shop import order, shop
from .conftest import Told

pytestmark = pytest.mark.service


async def lineage_events(tested: TestedPipelines) -> list[Any]:
    return await tested.fetch(
        "SELECT e.node_name AS job, e.meta ->> 'how' AS how, (e.meta ->> 'version')::int AS number, e.stream_version"
        " FROM noetl.event AS e WHERE e.event_type = 'dataset.lineage_set' ORDER BY e.node_name, e.event_id"
    )


async def test_the_first_commit_of_a_generation_tells_its_lineage(tested: TestedPipelines, told: Told) -> None:
    """INV-73."""
    tested.give("orders", order(1, 10), order(2, 20))
    await tested.deploy(shop())
    events = await lineage_events(tested)
    assert [(row["job"], row["how"], row["number"]) for row in events] == [
        ("clean", "sql", 1),
        ("orders", "opaque", 1),
        ("totals", "sql", 1),
    ]
    view = await tested.view("totals")
    assert view.generation is not None
    found = await told.reader.lineage(view.generation.dataset_version)
    assert found is not None
    (clean,) = {edge.source for edge in found.of("amount")}
    assert clean == (await tested.view("clean")).dataset.dataset_uuid
    assert {(edge.source_column, edge.kind) for edge in found.of("orders")} == {(None, "aggregated")}


async def test_further_commits_that_tell_the_same_add_nothing(tested: TestedPipelines) -> None:
    """INV-73."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    before = await lineage_events(tested)
    tested.give("orders", order(1, 11), order(3, 30), order(4, 40))
    await tested.emit("shop", "orders")
    assert await lineage_events(tested) == before


async def test_another_process_that_tells_the_same_adds_nothing(tested: TestedPipelines) -> None:
    """INV-73."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    before = await lineage_events(tested)
    tested.engine._committing._lineages._covered.clear()
    tested.give("orders", order(1, 11), order(2, 20))
    await tested.emit("shop", "orders")
    assert await lineage_events(tested) == before


async def test_a_column_that_comes_with_a_new_schema_has_its_lineage(tested: TestedPipelines, told: Told) -> None:
    tested.give("orders", order(1, 10))
    dag = shop(orders=", schema: {evolve: add_columns}")
    await tested.deploy(dag)
    tested.give("orders", order(2, 20, city="Ulm"))
    await tested.emit("shop", "orders")
    (first, second) = [row for row in await lineage_events(tested) if row["job"] == "orders"]
    assert (first["number"], second["number"]) == (1, 2)
    view = await tested.view("shop.orders.0")
    assert view.generation is not None
    found = await told.reader.lineage(view.generation.dataset_version)
    assert found is not None
    assert {edge.column for edge in found.edges} == {"day", "amount", "city"}


async def test_a_worker_that_tells_nothing_leaves_it_unknown_and_says_so(
    tested: TestedPipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-74."""
    monkeypatch.setattr("noetl.pipelines.worker.in_process._lineage", lambda work, produced: {})
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    rows = await tested.fetch("SELECT DISTINCT how, reason FROM noetl.dataset_lineage")
    assert [tuple(row) for row in rows] == [("unknown", "whoever did the task told nothing of it")]
    edges = await tested.fetch(
        "SELECT output_column, kind FROM noetl.column_lineage WHERE job = 'totals' ORDER BY place"
    )
    assert [tuple(row) for row in edges] == [("amount", "opaque"), ("factor", "opaque"), ("orders", "opaque")]


async def test_very_much_lineage_is_a_payload(
    tested: TestedPipelines, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.pipelines.tasks.commit.lineage.INLINE_BYTES", 10)
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    rows = await tested.fetch("SELECT columns_ref IS NOT NULL AS stored FROM noetl.dataset_lineage")
    assert {row["stored"] for row in rows} == {True}
    assert await tested.fetch("SELECT FROM noetl.column_lineage") == []
    view = await tested.view("totals")
    assert view.generation is not None
    found = await told.reader.lineage(view.generation.dataset_version)
    assert found is not None
    assert {edge.kind for edge in found.of("amount")} == {"aggregated"}
    before = len(await lineage_events(tested))
    tested.engine._committing._lineages._covered.clear()
    tested.give("orders", order(1, 11))
    await tested.emit("shop", "orders")
    assert len(await lineage_events(tested)) == before


async def test_tasks_that_commit_at_once_tell_it_once(tested: TestedPipelines) -> None:
    """INV-73."""
    gate = tested.gate("clean")
    tested.give("orders", *(order(day, day) for day in range(8)))
    deployed = await tested.begin(shop())
    for _ in range(8):
        await gate.arrived()
    gate.open()
    await asyncio.wait_for(tested.built(deployed), 60)
    assert [row["number"] for row in await lineage_events(tested) if row["job"] == "clean"] == [1]


async def test_what_a_generation_is_known_to_come_from_only_grows(tested: TestedPipelines) -> None:
    """INV-74."""
    tested.give("orders", order(1, 10))
    await tested.deploy(shop())
    view = await tested.view("totals")
    assert view.generation is not None
    lineages = tested.engine._committing._lineages
    target = _target(view.generation.dataset_version, view.dataset.dataset_uuid)
    less = lineage_of("unknown", {"amount": {}})
    assert await lineages._change(tested.scope, target, less) is None
    other = lineage_of("plan", {"amount": {("0b0c5b0e-0000-4000-8000-000000000000", "x"): "direct"}})
    change = await lineages._change(tested.scope, target, other)
    assert change is not None
    assert change.number == 2
    assert len(change.lineage.of("amount")) == 2


def _target(version: str, dataset: str) -> TaskTarget:
    return TaskTarget(output=0, dataset_uuid=dataset, dataset_version=version, dataset_name="totals", location="x/")
