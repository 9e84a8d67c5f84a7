"""What a worker keeps for executions goes when they have ended, and stays while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.tools.resources import Scratch
from noetl.runtime import scratch as sweeping
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

TEXT = playbook("""
workload: {url: ""}
workflow:
  - step: make
    tool: {kind: duckdb, command: CREATE TABLE kept AS SELECT 42 AS n}
    next: {arcs: [{step: wait, when: "{{ url }}"}]}
  - step: wait
    tool: {kind: http, url: "{{ url }}", timeout: 60}
    next: {arcs: [{step: read}]}
  - step: read
    tool: {kind: duckdb, query: SELECT n FROM kept}
""")


def databases(home: Path) -> set[str]:
    return {found.parent.name for found in home.rglob("execution.duckdb")}


async def test_a_database_is_dropped_when_its_execution_has_ended(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SWEEP_SECONDS", 0.01)
    dropped: asyncio.Queue[int] = asyncio.Queue()
    drop = Scratch.drop

    async def told(self: Scratch, executions: Iterable[int]) -> None:
        ended = list(executions)
        await drop(self, ended)
        for execution_id in ended:
            dropped.put_nowait(execution_id)

    monkeypatch.setattr(Scratch, "drop", told)
    waiting, through = asyncio.Event(), asyncio.Event()

    async def wait(_request: web.Request) -> web.Response:
        waiting.set()
        await through.wait()
        return web.json_response("through")

    app = web.Application()
    app.router.add_get("/", wait)
    async with TestServer(app) as server:
        running = await playbooks.start(TEXT, {"url": str(server.make_url("/"))})
        await asyncio.wait_for(waiting.wait(), 30)
        ended = await playbooks.run(TEXT)
        assert ended.status == "COMPLETED", ended.error
        assert await asyncio.wait_for(dropped.get(), 30) == ended.execution_id
        assert databases(playbooks.home) == {str(running.execution_id)}
        through.set()
        state = await playbooks.finished(running.execution_id)
    assert state.status == "COMPLETED", state.error
    assert state.results["read"].data["rows"] == [{"n": 42}]
    assert await asyncio.wait_for(dropped.get(), 30) == running.execution_id
    assert databases(playbooks.home) == set()


async def test_nothing_is_left_when_the_worker_ends(playbooks: Playbooks) -> None:
    result = await playbooks.run_alone(TEXT)
    assert result.status == "COMPLETED", result.error
    assert databases(playbooks.home) == set()


async def test_a_table_that_another_worker_made_is_told_about_with_what_to_do(playbooks: Playbooks) -> None:
    state = await playbooks.run(playbook("workflow: [{step: read, tool: {kind: duckdb, query: FROM elsewhere}}]"))
    assert state.status == "FAILED"
    assert "elsewhere does not exist" in (state.error or "")
    assert "name a `database` that all of them reach" in (state.error or "")
