"""Whoever tells others about tasks is killed around every write; in the end they were told everything, in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.services.openlineage.facts import run_id
from noetl.testing.engines.pipelines import TestedPipelines

pytestmark = [pytest.mark.service, pytest.mark.fault]

POINTS = ("openlineage.before_send", "openlineage.after_send", "openlineage.after_cursor")
DAG = """
name: shop
jobs:
  - {name: orders, operator: made, runtime: dispatcher, partition_by: [day]}
  - {name: clean, operator: made, runtime: dispatcher, inputs: [orders], partition_by: [day],
     config: {query: SELECT day FROM orders}}
publish: [clean]
"""


@pytest.fixture
def telling(pipelines: TestedPipelines, owner_url: str, tmp_path: Path) -> Callable[[str | None], asyncio.Future[int]]:
    """Runs `noetl lineage emit --once`, killed at a point if one is given; gives how it ended."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("NOETL_")},
        "NOETL_DATABASE_URL": owner_url,
        "NOETL_RUNTIME__HOME": str(pipelines.runtime.settings.runtime.home),
        "NOETL_OPENLINEAGE__TRANSPORT": "file",
        "NOETL_OPENLINEAGE__PATH": str(tmp_path / "told.jsonl"),
    }

    async def tell(point: str | None) -> int:
        armed = {} if point is None else {"NOETL_FAULT": f"{point}=kill"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noetl", "lineage", "emit", "--once", env=environment | armed,
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return await process.wait()

    return lambda point: asyncio.ensure_future(tell(point))


async def _happened(pipelines: TestedPipelines) -> set[tuple[str, str]]:
    rows = await pipelines.fetch(
        "SELECT substr(stream_id, 6) AS task, (meta ->> 'attempt')::int AS attempt, event_type FROM noetl.event"
        " WHERE event_type IN ('task.claimed', 'task.completed')"
    )
    states = {"task.claimed": "START", "task.completed": "COMPLETE"}
    return {(run_id(pipelines.scope, row["task"], row["attempt"]), states[row["event_type"]]) for row in rows}


@pytest.mark.parametrize("point", POINTS)
async def test_nothing_is_left_out_by_a_crash(
    pipelines: TestedPipelines,
    telling: Callable[[str | None], asyncio.Future[int]],
    tmp_path: Path,
    point: str,
) -> None:
    """INV-75."""
    pipelines.give("orders", {"day": "1"}, {"day": "2"}, {"day": "3"})
    await pipelines.deploy(DAG)
    for _ in range(2):
        assert await telling(point) == -signal.SIGKILL
    assert await telling(None) == 0
    told = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    pairs = [(one["run"]["runId"], one["eventType"]) for one in told]
    assert set(pairs) == await _happened(pipelines)
    for run in {run for run, _ in pairs}:
        assert [state for one, state in pairs if one == run][:1] == ["START"]
    assert (len(pairs) > len(set(pairs))) is (point == "openlineage.after_send"), "only then something is sent again"
