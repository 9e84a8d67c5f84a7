"""The patient workload runs while its projectors are killed, paused, added and removed: exact totals, and replay holds.

Events are mirrored to NATS by a relay, and durable readers of that stream wake the projectors and tell how far they are.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest
from examples.pft.records import expected
from tests.faults.engine.engine_testbed import SCOPED
from tests.faults.killable import Killable
from tests.faults.projectors.patients import PortionedApi, open_patient_server, saved_records, serving
from tests.faults.projectors.processes import LEASE_SECONDS, PATIENCE, ProjectorProcess
from tests.faults.projectors.test_projectors_change import all_shards, covered, shared

from noetl.kernel.leases.shards import holders
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.wakeups import durable_of
from noetl.model.stream import SHARD_COUNT
from noetl.runtime.config import load_settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.samples.projected_ledger import pure_rows, stored_rows

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow]

PATIENTS = 60
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


@pytest.fixture
def environ(owner_url: str, nats_url: str, stream_prefix: str, tmp_path: Path) -> dict[str, str]:
    """The settings of all processes: one home, and a stream of the test's own."""
    return {
        "NOETL_DATABASE_URL": owner_url,
        "NOETL_HOME": str(tmp_path / "home"),
        "NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": "nats-jetstream",
        "NOETL_EVENT_STORE__CONNECTION__URL": nats_url,
        "NOETL_EVENT_STORE__CONNECTION__STREAM_PREFIX": stream_prefix,
    }


@pytest.fixture
def relay(environ: dict[str, str], tmp_path: Path) -> Iterator[Killable]:
    """A relay in a process of its own, which shares the shards with that of the server."""
    process = Killable(
        "-m", "noetl", "relay", log=tmp_path / "relay.log", environ=environ, patience=PATIENCE, cwd=tmp_path
    )
    yield process
    process.close()


async def test_the_patients_are_projected_whatever_becomes_of_the_projectors(
    owner_url: str, environ: dict[str, str], relay: Killable, tmp_path: Path, begin: Begin, moves: Moves
) -> None:
    totals, api, settings = expected(1, PATIENTS, "s3"), PortionedApi(), load_settings(environ=environ)
    living = [begin(f"noetl-projector-{number}", **environ) for number in range(4)]
    async with (
        open_runtime(settings) as runtime,
        serving(api) as api_url,
        open_patient_server(tmp_path, environ) as server,
    ):
        await shared(living, 4)
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
        living.append(begin("noetl-projector-4", **environ))
        await portion()
        await shared(living, 4)
        leaving = holder_of(shard, living)
        leaving.process.send_signal(signal.SIGTERM)
        living.remove(leaving)
        living.append(begin(killed.name, **environ))
        while len({runtime.scope.stream(f"execution/{one}").shard for one in beside}) < SHARD_COUNT:
            beside.append(await server.start("demo/beside"))
        await portion()
        assert await asyncio.to_thread(leaving.process.wait, PATIENCE) == 0, leaving.said()
        await api.allow(10 * totals.requests)
        assert await server.status(execution_id, wait=30) == "COMPLETED"
        assert {await server.status(one, wait=30) for one in beside} == {"COMPLETED"}
        assert await saved_records(owner_url) == totals.as_workload()

        await covered(runtime.projections, await runtime.ledger.head(), living)
        await shared(living, 4)
        assert all_shards(living) == list(range(SHARD_COUNT))
        relays = {one.holder for one in await holders(runtime.database) if one.role == "relay"}
        assert any(name.endswith(f"/{relay.pid}") for name in relays), relays
        await heard(runtime, living)
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


async def heard(runtime: Runtime, living: list[ProjectorProcess]) -> None:
    """Wait until the stream has every event, and each projector's durable reader has acknowledged all of its shards."""
    behind: list[int | None] = []
    try:
        async with open_stream(runtime.settings, runtime.database, "events") as stream, asyncio.timeout(PATIENCE):
            while True:
                lags = {(one.durable, one.shard): one.messages for one in await stream.lags()}
                behind = [lags.get((durable_of(each.name), shard)) for each in living for shard in each.shards]
                events = sum((await runtime.ledger.head()).positions)
                if behind == [0] * SHARD_COUNT and (await stream.state()).messages == events:
                    return
    except TimeoutError:
        pytest.fail(f"the readers of the shards are behind by {behind}")


async def longest_wait(url: str) -> float:
    """Return how long any event waited until a checkpoint moved over it, in seconds."""
    connection: asyncpg.Connection = await asyncpg.connect(url, server_settings=SCOPED)
    try:
        return float(await connection.fetchval(_LONGEST_WAIT))
    finally:
        await connection.close()
