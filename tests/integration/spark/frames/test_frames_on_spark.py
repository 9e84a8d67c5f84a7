"""Stages whose frames run inside Spark's executors: the same rows, events, leases and ends as with a worker alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import psutil
import pytest
from tests.integration.spark.frames.conftest import ran

from noetl.engine.dispatch.grants import CommandGrant, LoopGrant, StepContext
from noetl.runtime.spark.frames import OnExecutor, frame_pool
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.engines.short_leases import until

pytestmark = pytest.mark.timeout(300)

SQUARES = """
    executor: {profile: distributed, runtime: spark}
    workflow:
      - step: each
        loop:
          in: "{{ range(30) | list }}"
          iterator: n
          spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 7, row_concurrency: 2}}
        tool:
          kind: python
          input: {n: "{{ iter.n }}"}
          code: "result = n * n"
          set: {ctx.seen: "{{ output.data }}"}
"""


async def test_frames_of_a_stage_run_in_executors_under_one_command(on_spark: Playbooks) -> None:
    state = await ran(on_spark, playbook(SQUARES))

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [n * n for n in range(30)]
    assert state.ctx["seen"] in [n * n for n in range(30)]
    events = await on_spark.events(state.execution_id)
    kinds = Counter(event["event_type"] for event in events)
    assert (kinds["command.issued"], kinds["frame.dispatched"], kinds["frame.committed"]) == (1, 5, 5)
    (issued,) = [event for event in events if event["event_type"] == "loop.started"]
    workers = {event["meta"]["worker"] for event in events if event["event_type"] == "frame.dispatched"}
    assert all(f"/noetl-frames-{state.execution_id}-" in worker and "/lane/" in worker for worker in workers)
    assert all(worker.partition("/spark/")[2].startswith(("local-", "app-")) for worker in workers)
    # Before Spark began, the ledger had the names by which whoever comes after can stop it.
    (begun,) = [event for event in events if event["event_type"] == "command.started"]
    assert events.index(begun) < min(
        number for number, event in enumerate(events) if event["event_type"] == "frame.dispatched"
    )
    assert all(f"/spark/{begun['meta']['application_id']}/{begun['meta']['job_tag']}/" in worker for worker in workers)

    # A lane that Spark runs again names what its first try committed.
    reach = frame_pool(on_spark.runtime.settings, on_spark.scope, database=on_spark.runtime.database)._reach
    grant = CommandGrant(
        execution_id=state.execution_id, command_id="each/1/0", step="each", attempt=1, token="", lease_seconds=1,
        catalog_id=state.catalog_id, issued_event_id=0, context=StepContext(workload={}, ctx={}, results={}),
        loop=LoopGrant(stage_id=1, loop_id=issued["loop_id"], mode="parallel", total=30, frame={}, rows_ref=None),
    )  # fmt: skip
    stored = [await OnExecutor(reach).committed(grant, worker) for worker in sorted(workers)]
    assert sorted(index for lane in stored for index, _ in lane) == [0, 1, 2, 3, 4]
    assert sum(ref.rows or 0 for lane in stored for _, ref in lane) == 30


async def test_a_cursor_loop_claims_in_the_executors(on_spark: Playbooks) -> None:
    connection = await asyncpg.connect(on_spark.owner_url)
    try:
        await connection.execute(
            "CREATE TABLE public.visits (id int PRIMARY KEY, status text NOT NULL DEFAULT 'pending');"
            "INSERT INTO public.visits (id) SELECT generate_series(1, 40)"
        )
        await on_spark.credential("db", "postgres", dsn=on_spark.owner_url)
        state = await ran(
            on_spark,
            playbook("""
            workflow:
              - step: each
                loop:
                  cursor:
                    kind: postgres
                    auth: db
                    claim: >-
                      UPDATE public.visits SET status = 'claimed' WHERE id IN (SELECT id FROM public.visits
                      WHERE status = 'pending' ORDER BY id LIMIT {{ __frame_max_rows }} FOR UPDATE SKIP LOCKED)
                      RETURNING id
                  iterator: visit
                  spec: {mode: cursor, max_in_flight: 2, policy: {exec: spark}, frame: {max_rows: 10}}
                tool:
                  kind: postgres
                  auth: db
                  command: "UPDATE public.visits SET status = 'done' WHERE id = {{ iter.visit.id }}"
            """),
        )
        assert state.status == "COMPLETED", state.error
        found = await connection.fetch("SELECT status, count(*) AS n FROM public.visits GROUP BY status")
        assert {row["status"]: row["n"] for row in found} == {"done": 40}
    finally:
        await connection.close()


async def test_a_shard_that_failed_is_told_like_any_other(on_spark: Playbooks) -> None:
    state = await ran(
        on_spark,
        playbook("""
        workflow:
          - step: each
            loop:
              in: [1, 0, 2]
              iterator: n
              spec: {mode: fanout, max_in_flight: 2, policy: {exec: spark}, fanout: {max_shard_retries: 0}}
            tool: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = 4 / n"}
        """),
    )

    data = state.results["each"].data
    assert (data["completed"], data["failed"]) == (2, 1), state.error
    assert data["results"] == [4.0, None, 2.0]


@asynccontextmanager
async def held() -> AsyncIterator[tuple[int, asyncio.Event, asyncio.Event]]:
    """Give a port that rows hold open while they work: events of the first that came and the last that is gone."""
    came, gone = asyncio.Event(), asyncio.Event()

    async def arrive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(arrive, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], came, gone


def sleeping(port: int, spec: str = "") -> str:
    """Return a playbook whose one row says that it is at work and then sleeps."""
    return playbook(f"""
    workflow:
      - step: each
        loop: {{in: [1], iterator: n, spec: {{policy: {{exec: spark}}}}}}
        {spec}
        tool:
          kind: python
          code: |
            import socket, time
            with socket.create_connection(("127.0.0.1", {port})):
                time.sleep(600)
    """)


async def test_a_cancelled_execution_stops_its_rows_in_the_executors(on_spark: Playbooks) -> None:
    async with held() as (port, came, gone):
        state = await on_spark.start(sleeping(port))
        async with asyncio.timeout(120):
            await came.wait()
            await on_spark.engine.cancel(on_spark.scope, state.execution_id, reason="enough", by="tests")
            await gone.wait()
    assert (await on_spark.finished(state.execution_id)).status == "CANCELLED"


async def kill_lane_when(mark: Path) -> None:
    """Kill the Python worker of Spark whose task has made a mark; the task itself cannot reach it."""
    await until(lambda: asyncio.to_thread(mark.exists), "the row whose lane dies")
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in process.cmdline() and any("-I" in one.cmdline() for one in process.children()):
                process.kill()


async def test_a_lane_that_dies_gives_its_frame_to_the_next_attempt(on_spark: Playbooks, tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    killing = asyncio.create_task(kill_lane_when(mark))
    state = await ran(
        on_spark,
        playbook(f"""
        workflow:
          - step: each
            loop: {{in: [1, 2, 3], iterator: n, spec: {{policy: {{exec: spark}}, frame: {{max_rows: 1}}}}}}
            tool:
              kind: python
              input: {{n: "{{{{ iter.n }}}}"}}
              code: |
                import pathlib, time
                mark = pathlib.Path({str(mark)!r})
                if n == 2 and not mark.exists():
                    mark.touch()
                    time.sleep(60)
                result = n
        """),
    )
    await killing

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [1, 2, 3]
    events = Counter(event["event_type"] for event in await on_spark.events(state.execution_id))
    assert (events["command.attempt_failed"], events["frame.abandoned"], events["frame.committed"]) == (1, 1, 3)
