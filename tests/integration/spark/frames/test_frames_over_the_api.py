"""Frames on Spark for a worker that has nothing but a server's API: its executors have no more than that either."""

from __future__ import annotations

import pytest
from tests.acceptance.test_api import Api, api
from tests.integration.spark.frames.conftest import lending

from noetl.runtime.remote import worker
from noetl.testing.servers.spark import SharedDrivers

__all__ = ["api"]

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: lanes, path: demo/lanes}
executor: {profile: distributed, runtime: spark}
workflow:
  - step: each
    loop: {in: "{{ range(8) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 3}}}
    tool: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = n + 1"}
    next: {arcs: [{step: sum}]}
  - step: sum
    tool: {kind: spark, input: {frames: "{{ each }}"}, sql: SELECT sum(value) AS total FROM frames}
    set: {ctx.total: "{{ sum.rows[0].total }}"}
"""


@pytest.fixture(autouse=True)
def _lent(spark_drivers: SharedDrivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "frame_pool", lending(spark_drivers))


async def test_executors_work_off_frames_over_the_api(api: Api) -> None:
    await api.call("POST", "/api/catalog/register", {"content": PLAYBOOK})
    name = (await api.call("POST", "/api/execute", {"path": "demo/lanes"}))["execution_id"]
    for _ in range(3):
        ended = await api.call("GET", f"/api/executions/{name}?wait=60")
        if ended["status"] != "RUNNING":
            break

    assert (ended["status"], ended["error"]) == ("COMPLETED", None)
    assert (await api.call("GET", f"/api/vars/{name}/total"))["value"] == 36
