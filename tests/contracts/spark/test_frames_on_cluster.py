"""Frames of a playbook on a real standalone cluster: one master and two worker processes that each run a lane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.spark.driver.meeting import meeting
from tests.unit.spark.frames.conftest import lending, ran

from noetl.runtime import engine
from noetl.spark.options import SparkOptions
from noetl.testing.playbook_runs import playbook
from noetl.testing.playbooks import Playbooks
from noetl.testing.spark import SharedDrivers

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
                    import os, pathlib, socket
                    if n in (0, 5):
                        # The first rows of the first two frames wait for each other: one lane alone would not get on.
                        with socket.create_connection(("127.0.0.1", {port})) as other:
                            other.recv(1)
                    lane = pathlib.Path(f"/proc/{{os.getppid()}}/cwd").resolve()
                    result = {{"n": n, "worker": [part for part in lane.parts if part.startswith("worker-")]}}
                next: {{arcs: [{{step: count}}]}}
              - step: count
                tool: {{kind: spark, input: {{frames: "{{{{ each }}}}"}}, sql: "SELECT sum(n) AS total FROM frames"}}
            """),
        )

    assert state.status == "COMPLETED", state.error
    results = state.results["each"].data["results"]
    assert [row["n"] for row in results] == list(range(20))
    assert {place for row in results for place in row["worker"]} == {"worker-0", "worker-1"}
    assert state.results["count"].data["rows"] == [{"total": 190}]
    dispatched = await playbooks.events(state.execution_id, "frame.dispatched")
    assert len({event["meta"]["worker"] for event in dispatched}) == 2


async def test_an_executor_that_is_lost_costs_no_row_and_repeats_no_result(
    playbooks: Playbooks, cluster: SharedDrivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """INV-59."""
    monkeypatch.setattr(engine, "frame_pool", lending(cluster))
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
                import os, pathlib, signal
                marker = pathlib.Path("{tmp_path}", "killed")
                if n == 7 and not marker.exists():
                    marker.touch()
                    # From this process up to the executor's own, which is the first that is no Python.
                    pid = os.getppid()
                    while "java" not in os.readlink(f"/proc/{{pid}}/exe"):
                        pid = int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
                    os.kill(pid, signal.SIGKILL)
                result = n * n
        """),
    )

    assert (tmp_path / "killed").exists()
    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [n * n for n in range(20)]
    committed = await playbooks.events(state.execution_id, "frame.committed")
    assert sorted(event["meta"]["frame_index"] for event in committed) == [0, 1, 2, 3]
