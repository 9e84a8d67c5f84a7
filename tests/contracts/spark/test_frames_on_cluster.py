"""Frames of a playbook on a real standalone cluster: one master and two worker processes that each run a lane."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.unit.spark.driver.meeting import meeting
from tests.unit.spark.frames.conftest import lending, ran

from noetl.runtime import engine
from noetl.spark.options import SparkOptions
from noetl.testing.playbooks import Playbooks, playbook
from noetl.testing.spark import SharedDrivers
from noetl.testing.spark_cluster import running_cluster

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(spark_options: SparkOptions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDrivers]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), spark_options) as master:
        settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
        shared = SharedDrivers(
            msgspec.structs.replace(spark_options, master=master, conf=spark_options.conf | settings)
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
