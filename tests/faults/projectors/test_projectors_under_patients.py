"""The patient workload runs while its projectors are killed, paused, added and removed: exact totals, and replay holds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest
from examples.pft.records import expected
from tests.faults.engine.ground import SCOPED
from tests.faults.projectors.patients import PortionedApi, open_patient_server, saved_records, serving
from tests.faults.projectors.processes import LEASE_SECONDS, PATIENCE, ProjectorProcess
from tests.faults.projectors.test_projectors_change import all_shards, covered, shared

from noetl.model.shard import SHARD_COUNT
from noetl.project.folds.registry import built_in_folds
from noetl.runtime.settings import Settings
from noetl.runtime.wiring import open_runtime
from noetl.testing.projecting import pure_rows, stored_rows

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow]

PATIENTS = 100
PORTIONS = 6
BESIDE = 16
"""Small runs that are started with each portion, so that there is work in other shards, too."""
MARGIN_SECONDS = 2.0
"""What may pass beside the lease: a fifth of it until its silent holder is missed, up to a second until a projector looks by
itself, and the batch."""
_LONGEST_WAIT = """
SELECT max(extract(epoch FROM m.at - e.ingest_time))::float8
FROM public.checkpoint_move AS m JOIN noetl.event AS e ON e.shard = m.shard AND e.position = m.before + 1
"""
Begin = Callable[..., ProjectorProcess]
Moves = Callable[[], dict[int, list[tuple[int, int]]]]


def holder_of(shard: int, among: list[ProjectorProcess]) -> ProjectorProcess:
    """Return the projector that has a shard."""
    return next(each for each in among if shard in each.shards)


async def test_the_patients_are_projected_whatever_becomes_of_the_projectors(
    owner_url: str, tmp_path: Path, begin: Begin, moves: Moves
) -> None:
    totals, api, home = expected(1, PATIENTS, "s3"), PortionedApi(), tmp_path / "home"
    environ = {"NOETL_DATABASE_URL": owner_url, "NOETL_HOME": str(home)}
    living = [begin(f"noetl-projector-{number}", NOETL_HOME=str(home)) for number in range(4)]
    await shared(living, 4)
    settings = Settings.model_validate({"runtime": {"home": str(home)}, "database": {"url": owner_url}})
    async with (
        open_runtime(settings) as runtime,
        serving(api) as api_url,
        open_patient_server(tmp_path, environ) as server,
    ):
        execution_id = await server.start(
            "examples/pft/pft_s3", api_url=api_url, pg={"dsn": owner_url}, num_facilities=1,
            patients_per_facility=PATIENTS, frame_rows=10, max_in_flight=3, row_concurrency=2,
            expected=totals.as_workload(),
        )  # fmt: skip
        shard = runtime.scope.stream(f"execution/{execution_id}").shard
        beside: list[int] = []

        async def portion() -> None:
            """Let the run go on for a while, and others beside it, and see that it has not come to its end."""
            beside.extend(await asyncio.gather(*(server.start("demo/beside") for _ in range(BESIDE))))
            await api.allow(totals.requests // PORTIONS)
            await api.used_up()
            assert await server.status(execution_id) == "RUNNING"

        await portion()
        killed = holder_of(shard, living)
        killed.process.kill()
        living.remove(killed)
        await portion()
        await asyncio.gather(*(asyncio.to_thread(each.until_it_has_at_least, 5) for each in living))
        # Nothing waits through two outages: who took over has caught up before it falls silent itself.
        await covered(runtime.projections, await runtime.ledger.head(), living)
        silent = holder_of(shard, living)
        silent.process.send_signal(signal.SIGSTOP)
        await portion()
        await shared([each for each in living if each is not silent], 8)
        silent.process.send_signal(signal.SIGCONT)
        living.append(begin("noetl-projector-4", NOETL_HOME=str(home)))
        await portion()
        await shared(living, 4)
        leaving = holder_of(shard, living)
        leaving.process.send_signal(signal.SIGTERM)
        living.remove(leaving)
        living.append(begin(killed.name, NOETL_HOME=str(home)))
        await portion()
        assert await asyncio.to_thread(leaving.process.wait, PATIENCE) == 0, leaving.said()
        await api.allow(10 * totals.requests)
        assert await server.status(execution_id, wait=30) == "COMPLETED"
        assert {await server.status(one, wait=30) for one in beside} == {"COMPLETED"}
        assert await saved_records(owner_url) == totals.as_workload()

        await covered(runtime.projections, await runtime.ledger.head(), living)
        await shared(living, 4)
        assert all_shards(living) == list(range(SHARD_COUNT))
    async with open_runtime(settings) as runtime:
        head = await runtime.ledger.head()
        await covered(runtime.projections, head, living)
        assert await stored_rows(runtime.projections) == await pure_rows(runtime.ledger, built_in_folds())
    for number, made in moves().items():
        assert (made[0][0], made[-1][1]) == (0, head.positions[number])
        assert all(one[1] == other[0] for one, other in pairwise(made)), f"shard {number} moved out of order: {made}"
    assert sum(1 for position in head.positions if position) == SHARD_COUNT
    assert await longest_wait(owner_url) < LEASE_SECONDS + MARGIN_SECONDS
    verified = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "noetl", "verify", "--all"], env=os.environ | environ,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout + verified.stderr


async def longest_wait(url: str) -> float:
    """Return how long any event waited until a checkpoint moved over it, in seconds."""
    connection: asyncpg.Connection = await asyncpg.connect(url, server_settings=SCOPED)
    try:
        return float(await connection.fetchval(_LONGEST_WAIT))
    finally:
        await connection.close()
