"""The views of the examples tell the truth: the rows of open work, and what the events say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers
from tests.contracts.story_pipelines import whole_story
from tests.contracts.views.view_testbed import SCOPE, ViewTestbed, standing

from noetl.kernel.ledger.postgres.database import Database
from noetl.language.view.document import parse_view
from noetl.services.views.verification import Verifying
from noetl.testing.samples.executions import Driven, token
from noetl.testing.samples.pipelines import Piped
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[3] / "examples" / "views"
COMMITTED = """
SELECT meta ->> 'dataset_uuid' AS dataset, count(*) AS commits, sum((meta ->> 'rows')::bigint)::bigint AS rows_committed,
       to_char(max(ingest_time) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS committed_at
FROM noetl.event WHERE event_type = 'partition.committed' GROUP BY 1
"""
SLOTS = """
SELECT split_part(stream_id, '/', 2) AS schedule, meta ->> 'plan_time' AS plan_time
FROM noetl.event WHERE event_type = 'slot.claimed' GROUP BY 1, 2
HAVING min(ingest_time) - (meta ->> 'plan_time')::timestamptz > interval '60 seconds'
"""
FRAMES = "SELECT stage_id::text, count(*) AS running FROM noetl.frame WHERE status = 'LEASED' GROUP BY 1"
COMMANDS = """
SELECT tool_kind, count(*) FILTER (WHERE status = 'PENDING') AS waiting,
       count(*) FILTER (WHERE status = 'CLAIMED') AS running FROM noetl.command GROUP BY 1
"""


async def happened(testbed: ViewTestbed) -> None:
    """Let executions run, wait, fail and end, and pipelines and schedules do all they can."""
    send = testbed.ledger.transact
    for number in range(3):
        run = await Driven().begin(testbed.ledger, "a", "b", "c", stage=True)
        held = [token() for _ in range(4)]
        await send(run.claimed("a", held[0]))
        await send(run.claimed("b", held[1]))
        await send(run.command("b", "command.attempt_failed", run.fence("b", 1, held[1])))
        frames = [run.drafts.mint() for _ in range(2)]
        for place, frame_id in enumerate(frames):
            await send(run.dispatched(frame_id, held[2 + place], index=place))
        await send(run.frame(frames[0], "frame.committed", run.frame_fence(frames[0], 1, held[2])))
        if number == 0:
            await send(run.closed())
        if number == 1:
            await send(run.command("a", "command.completed", run.fence("a", 1, held[0])))
        if number == 2:
            await send(run.ended("playbook.failed"))
    for change in whole_story(Piped()):
        await send(change)


async def fetched(database: Database, sql: str) -> list[dict[str, Any]]:
    async with database.transaction(SCOPE) as connection:
        return [dict(row) for row in await connection.fetch(sql)]


def sorted_rows(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


async def test_the_examples_tell_the_truth(database: Database, spark_drivers: SharedDrivers) -> None:
    """INV-94."""
    async with standing(database, AnsweringDrivers(spark_drivers), spark_drivers.options) as testbed:
        await happened(testbed)

        async def told(name: str) -> list[dict[str, Any]]:
            file = EXAMPLES / f"{name}.yaml"
            files = {path.name: path.read_bytes() for path in EXAMPLES.iterdir()}
            document = parse_view(file.read_text(), files=files)
            version, _ = await testbed.versions.deploy(SCOPE, document, "tests")
            head = await testbed.ledger.head()
            return list((await Verifying(testbed.around).computed(SCOPE, version, head)).values())

        def same(rows: list[dict[str, Any]], truth: list[dict[str, Any]]) -> None:
            names = tuple(truth[0])
            assert sorted_rows(rows, *names) == sorted_rows(truth, *names)

        same(await told("running_frames"), await fetched(database, FRAMES))
        same(await told("queue_depth"), await fetched(database, COMMANDS))
        same(await told("dataset_freshness"), await fetched(database, COMMITTED))
        failures = await told("failures_by_hour")
        assert [(row["playbook"], row["failures"]) for row in failures] == [("tests/driven", 1)]
        same(await told("late_slots"), await fetched(database, SLOTS))
        # Rollups and functions of PySpark run as streams, too, and come to the same.
        for name in ("failures_by_hour", "late_slots"):
            await testbed.caught_up(name)
            found = await testbed.verified(name)
            assert (found.differences, found.rows > 0) == (0, True), found
