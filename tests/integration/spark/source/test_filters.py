"""Filters of a query reach PostgreSQL: it gives the rows that Spark would keep, and plans look at what is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from pyspark.sql import datasource as spark
from tests.integration.spark.source.read_without_spark import CARE, planned, read

from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.event import Event
from noetl.model.stream import Scope
from noetl.spark.source.connections import transaction
from noetl.spark.source.filters import condition
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.ranges import Executions, Range
from noetl.spark.source.statement import reading
from noetl.testing.contracts.ledger.event_lists import everything

Options = Callable[..., dict[str, str]]
Keep = Callable[[Event], Any]


def cases(events: list[Event]) -> list[tuple[spark.Filter, Keep]]:
    """Return filters of every kind, each with the question it asks of an event."""
    middle = sorted(events, key=lambda event: event.event_time)[len(events) // 2]
    run, at, frame = middle.execution_id, middle.event_time, next(e.frame_id for e in events if e.frame_id)
    return [
        (spark.EqualTo(("event_type",), "frame.committed"), lambda e: e.event_type == "frame.committed"),
        (spark.EqualNullSafe(("status",), "ok"), lambda e: e.status == "ok"),
        (spark.In(("event_type",), ("loop.done", "it's \" \\ {0}")), lambda e: e.event_type == "loop.done"),
        (spark.Not(spark.EqualTo(("node_name",), "other")), lambda e: e.node_name is not None),
        (spark.Not(spark.In(("event_id",), (middle.event_id,))), lambda e: e.event_id != middle.event_id),
        (spark.GreaterThan(("event_time",), at), lambda e: e.event_time > at),
        (spark.LessThanOrEqual(("event_time",), at.replace(tzinfo=None)), lambda e: e.event_time <= at),
        (spark.GreaterThanOrEqual(("stream_id",), middle.stream_id), lambda e: e.stream_id >= middle.stream_id),
        (spark.LessThan(("position",), 9), lambda e: e.position < 9),
        (spark.EqualTo(("execution_id",), run), lambda e: e.execution_id == run),
        (spark.EqualTo(("frame_id",), frame), lambda e: e.frame_id == frame),
        (spark.In(("shard",), (middle.shard, 99)), lambda e: e.shard == middle.shard),
        (spark.IsNull(("frame_id",)), lambda e: e.frame_id is None),
        (spark.IsNotNull(("frame_id",)), lambda e: e.frame_id is not None),
        (spark.StringStartsWith(("event_type",), "loop."), lambda e: e.event_type.startswith("loop.")),
        (spark.StringEndsWith(("event_type",), ".closed"), lambda e: e.event_type.endswith(".closed")),
        (spark.StringContains(("stream_id",), "/frame/"), lambda e: "/frame/" in e.stream_id),
    ]


@pytest.mark.service
async def test_postgresql_gives_the_rows_a_filter_keeps(
    ledger: PostgresLedger, runs: dict[Scope, list[int]], options: Options
) -> None:
    events = await everything(ledger, CARE)
    for one, keep in cases(events):
        kept = [event for event in events if keep(event)]
        assert 0 < len(kept) < len(events), one
        assert sorted(read(options(), [one]), key=lambda e: (e.shard, e.position)) == kept, one
    both = [spark.EqualTo(("event_type",), "frame.committed"), spark.EqualTo(("execution_id",), runs[CARE][2])]
    assert {event.execution_id for event in read(options(), both)} == {runs[CARE][2]}
    assert read(options(execution=str(runs[CARE][1])), both) == []


@pytest.mark.parametrize(
    "one",
    [
        spark.EqualTo(("meta",), "{}"),
        spark.EqualTo(("meta", "attempt"), 1),
        spark.EqualTo(("execution_id",), None),
        spark.EqualTo(("execution_id",), 1 << 70),
        spark.EqualTo(("event_type",), "a\0b"),
        spark.In(("status",), ("ok", None)),
        spark.Not(spark.EqualNullSafe(("status",), "ok")),
        spark.Not(spark.In(("status",), ("ok", None))),
        spark.LessThan(("event_time",), "2026-01-01"),
        spark.EqualTo(("unheard_of",), 1),
    ],
)
def test_what_postgresql_would_answer_otherwise_is_left_to_spark(one: spark.Filter) -> None:
    assert condition(one) is None


def test_values_are_no_part_of_the_statement() -> None:
    options = SourceOptions.parse({"url": "postgresql://x", "tenant": "a'; DROP", "organization": "o'"})
    nasty = "'); DROP TABLE noetl.event; --"
    conditions = [condition(spark.EqualTo(("event_type",), nasty)), condition(spark.In(("node_name",), (nasty,)))]
    text, values = reading(options, Range(3, 17, 4711), [one for one in conditions if one is not None])
    assert values == [3, 17, 4711, "a'; DROP", "o'", nasty, [nasty]]
    assert not any(part in text for part in ("DROP", "4711", "o'"))


@pytest.mark.service
async def test_plans_come_from_heads_and_reading_from_an_index(
    owner_url: str, ledger: PostgresLedger, runs: dict[Scope, list[int]], options: Options
) -> None:
    head = await ledger.head()
    shard = max(range(16), key=lambda number: head.positions[number])
    last = head.positions[shard]
    filters = [spark.EqualTo(("shard",), shard), spark.GreaterThan(("position",), last - 4)]
    _, tasks = planned(options(), filters)
    assert [task.value for task in tasks] == [(Range(shard, last - 3, last),)]
    _, tasks = planned(options(), [spark.In(("execution_id",), tuple(runs[CARE]))])
    assert [[type(place) for place in task.value] for task in tasks] == [[Executions]]
    _, tasks = planned(options(), [spark.EqualTo(("shard",), 99)])
    assert tasks == []

    text, values = reading(SourceOptions.parse(options()), Range(shard, last - 3, last), [])
    with transaction(SourceOptions.parse(options())) as opened:
        switches = opened.rows("SELECT name, setting FROM pg_settings WHERE name LIKE 'enable_%'")
    connection = await asyncpg.connect(owner_url, user="noetl_admin")
    try:
        async with connection.transaction():
            for switch in switches:
                await connection.execute("SELECT set_config($1, $2, true)", switch["name"], switch["setting"])
            await connection.execute("SELECT set_config('noetl_source.given', $1, true)", json.dumps(values))
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {text}"))
    finally:
        await connection.close()
    assert "shard_position" in plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan.replace("Sort Key", "")


def test_times_without_a_zone_are_utc() -> None:
    moment = datetime(2026, 5, 16, 12, 34, 56, tzinfo=UTC)
    with_zone, without = (condition(spark.EqualTo(("event_time",), at)) for at in (moment, moment.replace(tzinfo=None)))
    assert with_zone == without
