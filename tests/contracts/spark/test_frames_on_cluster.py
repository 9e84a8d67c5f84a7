"""Frames of a playbook on a real standalone cluster: one master and two worker processes that each run a lane."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.integration.spark.frames.conftest import lending, ran
from tests.unit.spark.drivers.meeting import meeting

from noetl.runtime.assembly import engine
from noetl.spark.session.options import SparkOptions
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.engines.short_leases import until
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(spark_options: SparkOptions, spark_master: str) -> Iterator[SharedDrivers]:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    shared = SharedDrivers(
        msgspec.structs.replace(spark_options, master=spark_master, conf=spark_options.conf | settings)
    )
    yield shared
    shared.close()


async def test_two_executors_work_off_the_frames_of_one_stage(
    playbooks: Playbooks, cluster: SharedDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "frame_pool", lending(cluster))
    async with meeting(2) as port:
        state = await ran(
            playbooks,
            playbook(f"""
            executor: {{profile: distributed, runtime: spark}}
            workflow:
              - step: each
                loop:
                  in: "{{{{ range(20) | list }}}}"
                  iterator: n
                  spec: {{mode: parallel, max_in_flight: 2, frame: {{max_rows: 5}}}}
                tool:
                  kind: python
                  input: {{n: "{{{{ iter.n }}}}"}}
                  code: |
                    import socket
                    if n in (0, 5):
                        # The first rows of the first two frames wait for each other: one lane alone would not get on.
                        with socket.create_connection(("127.0.0.1", {port})) as other:
                            other.recv(1)
                    result = {{"n": n}}
                next: {{arcs: [{{step: count}}]}}
              - step: count
                tool: {{kind: spark, input: {{frames: "{{{{ each }}}}"}}, sql: "SELECT sum(n) AS total FROM frames"}}
            """),
        )

    assert state.status == "COMPLETED", state.error
    results = state.results["each"].data["results"]
    assert [row["n"] for row in results] == list(range(20))
    assert state.results["count"].data["rows"] == [{"total": 190}]
    dispatched = await playbooks.events(state.execution_id, "frame.dispatched")
    assert len({event["meta"]["worker"] for event in dispatched}) == 2


async def test_an_executor_that_is_lost_costs_no_row_and_repeats_no_result(
    playbooks: Playbooks, cluster: SharedDrivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """INV-59."""
    monkeypatch.setattr(engine, "frame_pool", lending(cluster))
    killing = asyncio.create_task(kill_an_executor_when(tmp_path / "killed", tmp_path / "go on"))
    state = await ran(
        playbooks,
        playbook(f"""
        executor: {{profile: distributed, runtime: spark}}
        workflow:
          - step: each
            loop:
              in: "{{{{ range(20) | list }}}}"
              iterator: n
              spec:
                mode: parallel
                max_in_flight: 2
                frame: {{max_rows: 5, lease_seconds: 3, heartbeat_seconds: 1, max_attempts: 5}}
            tool:
              kind: python
              input: {{n: "{{{{ iter.n }}}}"}}
              code: |
                import pathlib, time
                marker, further = (pathlib.Path("{tmp_path}", name) for name in ("killed", "go on"))
                if n == 7 and not marker.exists():
                    marker.touch()
                    while not further.exists():
                        time.sleep(0.05)
                result = n * n
        """),
    )

    assert await killing
    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [n * n for n in range(20)]
    committed = await playbooks.events(state.execution_id, "frame.committed")
    assert sorted(event["meta"]["frame_index"] for event in committed) == [0, 1, 2, 3]


async def kill_an_executor_when(marker: Path, further: Path) -> int:
    """Kill an executor under its rows once one of them is under way; return its process."""
    await until(lambda: asyncio.to_thread(marker.exists), "the row that waits")
    executor = await asyncio.to_thread(_executor)
    executor.kill()
    await asyncio.to_thread(further.touch)
    return int(executor.pid)


def _executor() -> psutil.Process:
    """Find a JVM whose Python workers run tasks; no task can see it, nor reach it."""
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.NoSuchProcess):
            tasks = [one for one in process.children() if "-I" in one.cmdline()]
            if tasks and "pyspark.daemon" in (process.info["cmdline"] or ()):
                return next(one for one in process.parents() if "java" in one.name())
    raise AssertionError("no executor runs a task")
