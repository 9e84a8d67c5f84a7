"""The patient workload with two workers, one of which is killed again and again: it ends with its exact totals."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from examples.pft.mock_api import serve
from examples.pft.records import DATA_TYPES, expected
from tests.faults.engine.engine_testbed import EngineTestbed

from noetl.testing.engines.short_leases import LEASE_SECONDS, until

pytestmark = [pytest.mark.service, pytest.mark.fault]

PLAYBOOK = Path(__file__).parents[3] / "examples" / "pft" / "pft_s3.yaml"
PATIENTS = 100
KILLS = 4
TABLES = {**{kind: f"pft_test_patient_{kind}" for kind in DATA_TYPES}, "mds": "pft_test_mds_assessment_details"}


async def count_effects(testbed: EngineTestbed) -> dict[str, int]:
    """Return how many records were saved of each kind; none before the tables are made."""
    if await testbed.effects.fetchval("SELECT to_regclass('public.pft_test_facility_stage_gate')") is None:
        return {}
    query = " UNION ALL ".join(
        f"SELECT '{kind}' AS kind, count(*) FROM public.{table}" for kind, table in TABLES.items()
    )
    return {row["kind"]: row["count"] for row in await testbed.effects.fetch(query)}


async def test_killed_workers_change_nothing_of_what_is_fetched(testbed: EngineTestbed) -> None:
    chance = random.Random(20_261_116)
    totals = expected(1, PATIENTS, "s3")
    text = PLAYBOOK.read_text().replace(
        "lease_seconds: 120", f"lease_seconds: {LEASE_SECONDS}\n          max_attempts: 20"
    )
    async with serve() as api_url:
        execution_id = await testbed.start(
            text,
            api_url=api_url,
            num_facilities=1,
            patients_per_facility=PATIENTS,
            frame_rows=10,
            max_in_flight=3,
            row_concurrency=2,
            expected=totals.as_workload(),
        )
        workers = [testbed.process(slots=3) for _ in range(2)]
        for at in sorted(chance.sample(range(1, totals.requests), KILLS)):

            async def has_come_far(wanted: int = at) -> bool:
                return sum((await count_effects(testbed)).values()) >= wanted

            await until(has_come_far, f"{at} records")
            victim = chance.randrange(2)
            workers[victim].send(signal.SIGKILL)
            await workers[victim].killed()
            workers[victim] = testbed.process(slots=3)
        state = await testbed.finished(execution_id)
    assert (state.status, state.error) == ("COMPLETED", None)
    assert await count_effects(testbed) == totals.as_workload()
    left = await testbed.effects.fetchval(
        "SELECT count(*) FROM public.pft_test_patient_work_queue WHERE status <> 'done'"
    )
    assert left == 0
    ended = [event["frame_id"] for event in await testbed.events(execution_id, "frame.committed", "frame.failed")]
    assert len(ended) == len(set(ended))
    assert not await testbed.events(execution_id, "frame.failed", "command.failed")
    await testbed.assert_clean()
