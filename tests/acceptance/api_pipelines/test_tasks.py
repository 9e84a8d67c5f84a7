"""Tasks over the API: for people, for functions that only speak HTTP, and for workers whose server goes away."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.acceptance.api_pipelines.conftest import Parts
from tests.integration.api.serving import HOME, Server, running
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed, written

from noetl.api.access import admission
from noetl.errors import InputError, LeaseLost, Unavailable
from noetl.kernel.payloads.port import object_key
from noetl.model.task import TaskGrant, TaskLease, TaskReport
from noetl.pipelines.tasks.functions.http import HttpInvoker
from noetl.pipelines.tasks.functions.runner import FunctionRunner, Invokers
from noetl.pipelines.tasks.remote import RemoteTasks

OUTSIDE = """
name: outside
jobs:
  - name: call
    operator: made_up
    runtime: lambda
    config: {url: 'URL'}
"""


async def test_tasks_are_listed_page_by_page_and_shown_with_their_attempts(
    server: Server, testbed: TaskTestbed
) -> None:
    await testbed.built()
    page = await server.call("GET", "/api/tasks?limit=3", status=200)
    rest = await server.call("GET", f"/api/tasks?limit=3&cursor={page['next_cursor']}", status=200)
    assert [one["job"] for one in page["tasks"] + rest["tasks"]] == ["totals", "clean", "clean", "orders"]
    assert rest["next_cursor"] is None
    only = await server.call("GET", "/api/tasks?dag=shop&job=totals&status=Completed", status=200)
    (totals,) = only["tasks"]
    shown = await server.call("GET", f"/api/tasks/{totals['task_id']}", status=200)
    assert [(one["attempt"], one["outcome"], one["worker"]) for one in shown["attempts"]] == [
        (1, "completed", "worker")
    ]
    assert [part[:2] for part in shown["inputs"][0]["parts"]] == [["day=1", 1], ["day=2", 1]]
    assert "lease_token" not in shown
    await server.call("GET", "/api/tasks/00000000-0000-0000-0000-000000000000", status=404)


async def test_a_task_is_cancelled_and_tried_again_by_hand(server: Server, testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (task,) = (await server.call("GET", "/api/tasks?status=Queued"))["tasks"]
    path = f"/api/tasks/{task['task_id']}"
    cancelled = await server.call("POST", f"{path}/cancel", {"reason": "wrong input"}, status=200)
    assert (cancelled["status"], cancelled["open"], cancelled["error"]) == ("Canceled", False, "wrong input")
    refused = await server.call("POST", f"{path}/cancel", status=409)
    assert "ended already" in refused["detail"]
    assert (await server.call("POST", f"{path}/retry", status=200))["status"] == "Queued"
    (grant,) = await testbed.claim()
    asked = await server.call("POST", f"{path}/cancel", status=200)
    assert (asked["status"], asked["cancel_requested"]) == ("Running", True)
    assert await testbed.tasks.heartbeat([grant.lease]) == [grant.lease]
    assert (await server.call("GET", path))["status"] == "Canceled"


async def test_a_function_completes_its_task_by_plain_requests(server: Server, testbed: TaskTestbed) -> None:
    async def function(request: web.Request) -> web.Response:
        grant: dict[str, Any] = await request.json()
        known = msgspec.convert(grant, TaskGrant)
        write = msgspec.to_builtins(written(known, 0, "all", "made outside"))
        body = {"lease": grant["lease"], "report": {"status": "ok", "writes": [write]}, "log": "it worked\n"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.url}/api/tasks/complete", json=body) as answer,
        ):
            return web.json_response(await answer.json(), status=answer.status)

    app = web.Application()
    app.router.add_post("/run", function)
    async with TestServer(app, host="127.0.0.1") as outside:
        await testbed.deploy(OUTSIDE.replace("URL", str(outside.make_url("/run"))))
        invoker = HttpInvoker()
        runner = FunctionRunner("functions", testbed.tasks, Invokers({"url": invoker}))
        assert await runner.run_once() == 1
        await runner.settled()
        await invoker.close()
    (task,) = (await server.call("GET", "/api/tasks"))["tasks"]
    assert (task["status"], task["outputs"][0]["rows"]) == ("Completed", 1)
    async with server.session.get(f"{server.url}/api/tasks/{task['task_id']}/logs") as answer:
        assert (answer.status, answer.content_type, await answer.text()) == (200, "text/plain", "it worked\n")
    await server.call("GET", f"/api/tasks/{task['task_id']}/logs?attempt=2", status=404)


async def test_manifests_and_bundles_are_fetched_by_their_locators(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await testbed.claim()
    for ref in (grant.bundle, grant.targets[0].parts[0].manifest):
        async with server.session.get(f"{server.url}/api/result/resolve", params={"ref": ref.uri}) as answer:
            assert answer.status == 200
            assert len(await answer.read()) == ref.bytes
    key = object_key(testbed.scope, ref.sha256)
    data, at = testbed.payloads.kept[key]
    testbed.payloads.kept[key] = (data[:-1] + b"!", at)
    async with server.session.get(f"{server.url}/api/result/resolve", params={"ref": ref.uri}) as answer:
        assert (answer.status, answer.content_type) == (500, "application/problem+json")
        problem = await answer.json(content_type=None)
    assert (problem["code"], ref.sha256 in problem["detail"]) == ("corrupt", True)
    assert "restore the object from a copy" in problem["hint"]
    testbed.payloads.kept[key] = (data, at)


@pytest.mark.parametrize("path", ["other/org/datasets/x/part-0.parquet", "{location}../part-0.parquet", "/etc/passwd"])
async def test_files_of_others_cannot_be_committed(server: Server, testbed: TaskTestbed, path: str) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    write = written(grant, 0, "day=1", "mine")
    entry = msgspec.structs.replace(write.files[0], path=path.replace("{location}", grant.targets[0].location))
    remote = RemoteTasks(server.url)
    with pytest.raises(InputError, match="does not lie in"):
        await remote.complete(grant, TaskReport(status="ok", writes=(msgspec.structs.replace(write, files=(entry,)),)))
    with pytest.raises(InputError, match="no output 7"):
        await remote.complete(grant, TaskReport(status="ok", dropped=((7, "all"),)))
    await remote.close()
    assert (await testbed.task(grant.lease.task_id)).status == "Running"


class Cut:
    """Stands between worker and server; loses answers, after which another server may be there."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.target = server.url
        self.lost = 0
        self.after_loss: str | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and perhaps lose its answer."""
        async with self.server.session.request(
            request.method, self.target + request.path_qs, data=await request.read(), headers=request.headers
        ) as answer:
            data = await answer.read()
        if self.lost:
            self.lost -= 1
            self.target = self.after_loss or self.target
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=answer.status, body=data, content_type=answer.content_type)


@pytest.mark.parametrize("same_server", [True, False])
async def test_an_end_whose_answer_got_lost_is_recorded_once(
    server: Server, parts: Parts, testbed: TaskTestbed, *, same_server: bool
) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    cut = Cut(server)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", cut.handle)
    async with TestServer(app, host="127.0.0.1") as between, running(*parts, auth=False) as other:
        cut.after_loss = None if same_server else other.url
        remote = RemoteTasks(str(between.make_url("")), patience_seconds=10.0)
        cut.lost = 1
        assert await remote.complete(grant, testbed.report(grant)) == "Completed"
        with pytest.raises(LeaseLost):
            await remote.fetch(grant.lease)
        await remote.close()
    events = await testbed.rows("SELECT FROM noetl.event WHERE event_type = 'task.completed'")
    assert len(events) == 1


async def test_a_server_that_stays_away_is_waited_for_no_longer_than_agreed() -> None:
    remote = RemoteTasks("http://127.0.0.1:9", patience_seconds=0.0)
    async with asyncio.timeout(10):
        assert await remote.claim("w1", ("spark",), 1, 0.05) == []
        with pytest.raises(Unavailable):
            await remote.fetch(TaskLease(task_id="t", attempt=1, token="t", seconds=1.0))
    await remote.close()


async def test_a_task_claimed_with_a_token_that_has_ended_meanwhile_goes_to_another_at_once(
    testbed: TaskTestbed, guarded: Server, bearers: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-177."""
    monkeypatch.setattr(admission, "KEEP_SECONDS", 60.0)
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    await testbed.drain()
    claim = {"worker_id": "w1", "runtimes": ["dispatcher"], "want": 1}
    await guarded.call("POST", "/api/tasks/claim", claim | {"runtimes": ["spark"]}, headers=bearers["worker"])
    held = next(one for one in await guarded.services.tokens.list(HOME) if one.role == "worker")
    await guarded.services.tokens.revoke(HOME, held.token_id)
    await guarded.call("POST", "/api/tasks/claim", claim, headers=bearers["worker"], status=401)
    claimed = await guarded.call("POST", "/api/tasks/claim", claim, headers=bearers["admin"])
    assert [one["lease"]["attempt"] for one in claimed["tasks"]] == [2]
