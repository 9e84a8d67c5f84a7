"""A worker that reaches its server by HTTP alone builds a DAG which a person deployed the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.acceptance.api_pipelines.test_dags import packed
from tests.integration.api.serving import HOME, Server
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.errors import NotFound
from noetl.pipelines.operators.noop import NoopOperator
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tables.partitions import TableWriter
from noetl.pipelines.tasks.remote import RemoteTasks
from noetl.pipelines.worker.in_process import InProcess
from noetl.pipelines.worker.worker import TaskWorker

STEPS = """
name: steps
jobs:
  - {name: first, operator: noop}
  - {name: second, operator: noop, inputs: [first]}
"""


class NoSecrets:
    """Knows no secret."""

    async def values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return none."""
        if names:
            raise NotFound(f"there is no secret {names[0]}")
        return {}


async def test_a_dag_deployed_over_http_is_built_by_a_worker_over_http(
    guarded: Server, bearers: dict[str, dict[str, str]], testbed: TaskTestbed, lake: LakeFiles
) -> None:
    testbed.engine.start()
    token, _ = await guarded.services.tokens.create(HOME, "far away", "worker")
    remote = RemoteTasks(guarded.url, token)
    runner = InProcess({"noop": NoopOperator()}, TableWriter(lake))
    worker = TaskWorker("far away", HOME, remote, testbed.payloads, {"dispatcher": runner}, NoSecrets(), poll_seconds=2)
    working = asyncio.create_task(worker.run())
    try:
        body, writer = packed(STEPS), bearers["writer"]
        deployed = await guarded.call("POST", "/api/dags/deploy", body, headers=writer, status=201)
        path = f"/api/dags/steps/runs/{deployed['execution_id']}?wait=30"
        ended = await guarded.call("GET", path, headers=writer, status=200)
        assert (ended["status"], ended["error"]) == ("completed", None)
        status = await guarded.call("GET", "/api/dags/steps/status", headers=writer, status=200)
        assert status["version"]["status"] == "ready"
        tasks = (await guarded.call("GET", "/api/tasks", headers=writer))["tasks"]
        assert {(one["job"], one["status"], one["worker"]) for one in tasks} >= {("first", "Completed", "far away")}
    finally:
        await worker.stop()
        await working
        await remote.close()
