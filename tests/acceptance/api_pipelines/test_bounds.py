"""Who may do what with pipelines over the API, what organizations see of each other, and what no request can break."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.acceptance.api_pipelines.conftest import Parts
from tests.acceptance.api_pipelines.test_dags import packed
from tests.integration.api.generated_requests import failures_of
from tests.integration.api.serving import Server, running
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.errors import Denied, LeaseLost, NotFound
from noetl.model.stream import Scope
from noetl.pipelines.tasks.remote import RemoteTasks
from noetl.services.credentials.secret import Secret

NOUNS = ("/api/dags", "/api/datasets", "/api/tasks", "/api/outbox", "/api/people", "/api/roles")
OTHER = Scope("default", "other")


async def test_workers_do_tasks_and_nothing_else(
    guarded: Server, bearers: dict[str, dict[str, str]], testbed: TaskTestbed
) -> None:
    await guarded.call("POST", "/api/dags/deploy", packed(), headers=bearers["worker"], status=403)
    await guarded.call("POST", "/api/dags/deploy", packed(), headers=bearers["reader"], status=403)
    await guarded.call("POST", "/api/dags/deploy", packed(), headers=bearers["writer"], status=201)
    claim = {"worker_id": "w1", "runtimes": ["dispatcher"]}
    await guarded.call("POST", "/api/tasks/claim", claim, headers=bearers["writer"], status=403)
    (task,) = (await guarded.call("POST", "/api/tasks/claim", claim, headers=bearers["worker"], status=200))["tasks"]
    path = f"/api/tasks/{task['lease']['task_id']}"
    assert (await guarded.call("GET", path, headers=bearers["reader"], status=200))["status"] == "Running"
    await guarded.call("POST", f"{path}/cancel", headers=bearers["worker"], status=403)
    await guarded.call("POST", f"{path}/cancel", headers=bearers["writer"], status=200)
    await guarded.call("GET", "/api/people", headers=bearers["writer"], status=403)
    remote = RemoteTasks(guarded.url, Secret("noetl_nobody"))
    with pytest.raises(Denied):
        await remote.claim("w1", ("dispatcher",), 1, 0.0)
    await remote.close()


async def test_organizations_never_meet(
    guarded: Server, bearers: dict[str, dict[str, str]], testbed: TaskTestbed
) -> None:
    own = bearers["admin"]
    token, _ = await guarded.services.tokens.create(OTHER, "a stranger", "admin")
    strange = {"Authorization": f"Bearer {token.reveal()}"}
    mine = await guarded.call("POST", "/api/dags/deploy", packed(), headers=own, status=201)
    (grant,) = await testbed.claim()
    for path in ("/api/dags/shop/versions", f"/api/tasks/{grant.lease.task_id}", "/api/datasets/totals"):
        await guarded.call("GET", path, headers=strange, status=404)
    for path, key in (("/api/dags", "dags"), ("/api/tasks", "tasks"), ("/api/datasets", "datasets")):
        assert (await guarded.call("GET", path, headers=strange, status=200))[key] == []
    remote = RemoteTasks(guarded.url, token)
    assert await remote.claim("w1", ("dispatcher",), 10, 0.0) == []
    assert await remote.heartbeat([grant.lease]) == [grant.lease]
    with pytest.raises((LeaseLost, NotFound)):
        await remote.complete(grant, testbed.report(grant))
    await remote.close()
    theirs = await guarded.call("POST", "/api/dags/deploy", packed(), headers=strange, status=201)
    assert theirs["dag_version_id"] != mine["dag_version_id"]
    assert (await testbed.task(grant.lease.task_id)).status == "Running"


async def test_a_server_without_pipelines_says_so(parts: Parts) -> None:
    services, projections = parts
    async with running(replace(services, pipelines=None), projections, auth=False) as server:
        for path in ("/api/dags", "/api/datasets", "/api/tasks", "/api/outbox/dead"):
            refused = await server.call("GET", path, status=404)
            assert refused["detail"] == "this server builds no datasets"


async def test_what_could_not_be_delivered_is_seen_and_armed_again(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant, ["3"]))
    async with testbed.database.transaction(testbed.scope) as connection:
        await connection.execute(
            "UPDATE noetl.outbox SET status = 'Dead' WHERE status = 'Pending' AND kind = 'route_event'"
        )
    (dead,) = (await server.call("GET", "/api/outbox/dead", status=200))["dead"]
    assert (dead["kind"], dead["execution_id"]) == ("route_event", str(grant.execution_id))
    assert await testbed.claim() == []
    chosen = {"outbox_id": dead["outbox_id"]}
    assert (await server.call("POST", "/api/outbox/rearm", chosen, status=200))["rearmed"] == 1
    assert [one.job for one in await testbed.claim()] == ["clean"]
    await server.call("POST", "/api/outbox/rearm", chosen, status=404)
    assert (await server.call("POST", "/api/outbox/rearm", status=200))["rearmed"] == 0


async def test_people_are_added_get_roles_and_go(server: Server) -> None:
    added = await server.call(
        "POST", "/api/people", {"email": "ada@example.org", "role": "writer"}, headers=server.local, status=200
    )
    assert (added["email"], added["role"], added["roles"]) == ("ada@example.org", "writer", [])
    await server.call("POST", "/api/roles", {"slug": "analysts", "name": "Analysts"}, headers=server.local, status=200)
    member = {"email": "ada@example.org"}
    assert (await server.call("POST", "/api/roles/analysts/grant", member, headers=server.local, status=200))[
        "roles"
    ] == ["analysts"]
    (person,) = (await server.call("GET", "/api/people", status=200))["people"]
    assert person["roles"] == ["analysts"]
    assert (await server.call("POST", "/api/roles/analysts/revoke", member, headers=server.local, status=200))[
        "roles"
    ] == []
    await server.call("POST", "/api/roles/nobodies/grant", member, headers=server.local, status=404)
    await server.call("DELETE", "/api/people/ada@example.org", headers=server.local, status=204)
    assert (await server.call("GET", "/api/people"))["people"] == []
    assert [role["slug"] for role in (await server.call("GET", "/api/roles"))["roles"]] == ["analysts"]


async def test_no_generated_request_makes_the_server_fail(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    described = await server.call("GET", "/api/openapi.json", status=200)
    described["paths"] = {path: item for path, item in described["paths"].items() if path.startswith(NOUNS)}
    # What waits on purpose would only make the test wait.
    described["components"]["schemas"]["TaskClaimRequest"]["properties"]["wait_seconds"] = {"const": 0}
    described["paths"]["/api/dags/{dag}/runs/{execution_id}"]["get"]["parameters"].pop()
    failures = await asyncio.to_thread(failures_of, described, server.url)
    assert not failures, "\n".join(failures)
