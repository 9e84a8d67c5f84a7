"""Executions over the API: started, watched, listed, cancelled, re-run."""

from __future__ import annotations

import asyncio

from tests.integration.api.serving import HOME, LOOP, TWO_STEPS, Server

from noetl.engine.plan.trigger import CommandEnded


async def work_off(server: Server, *data: object) -> None:
    """Claim and complete one command after another with these results."""
    dispatch = server.services.engine.dispatch(HOME)
    for value in data:
        (grant,) = await dispatch.claim("w", 1, 5.0)
        report = CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status="ok", data=value)
        await dispatch.complete(grant, report, worker="w", take_next=False)


async def test_a_start_shows_the_workload_in_force(server: Server) -> None:
    await server.register(TWO_STEPS)
    body = {"path": "tests/two", "payload": {"size": 9, "nested": {"a": 5}}}
    answer = await server.call("POST", "/api/execute", body, status=201)
    assert answer["status"] == "RUNNING"
    assert answer["commands_generated"] == 1
    assert answer["workload"] == {"size": 9, "nested": {"a": 5, "b": 2}}


async def test_defaults_of_a_workload_are_rendered_for_each_request_and_kept_under_its_key(server: Server) -> None:
    await server.register(TWO_STEPS.replace("size: 3", 'size: 3, file: "{{ workload.size }}_{{ execution_id }}"'))
    body, key = {"path": "tests/two", "payload": {"size": "{{ raw }}"}}, {"Idempotency-Key": "rendered"}
    plain = await server.call("POST", "/api/execute", body, status=201)
    assert plain["workload"]["file"] == f"{{{{ raw }}}}_{plain['execution_id']}"
    first = await server.call("POST", "/api/execute", body, headers=key, status=201)
    again = await server.call("POST", "/api/execute", body, headers=key, status=201)
    assert again["execution_id"] == first["execution_id"] != plain["execution_id"]
    assert again["workload"]["file"] == f"{{{{ raw }}}}_{first['execution_id']}"
    other = await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=key, status=422)
    assert other["code"] == "idempotency_key_reused"


async def test_a_workload_that_cannot_be_rendered_is_refused_with_its_place(server: Server) -> None:
    await server.register(TWO_STEPS.replace("size: 3", 'size: 3, file: "{{ workload.nobody }}"'))
    problem = await server.call("POST", "/api/execute", {"path": "tests/two"}, status=400)
    assert problem["code"] == "template_failed"
    assert "tests/two, field workload.file: 'workload.nobody' is undefined" in problem["detail"]
    assert "(line 5 of the playbook)" in problem["detail"]
    assert (await server.call("GET", "/api/executions", status=200))["executions"] == []


async def test_every_surface_tells_the_same_status_when_an_execution_has_ended(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await work_off(server, {"size": 3}, 1)
    one = await server.call("GET", f"/api/executions/{name}", status=200)
    status = await server.call("GET", f"/api/executions/{name}/status", status=200)
    listed = (await server.call("GET", "/api/executions", status=200))["executions"]
    check = await server.call("GET", f"/api/executions/{name}/cancellation-check", status=200)
    assert {one["status"], status["status"], listed[0]["status"], check["status"]} == {"COMPLETED"}
    assert one["as_of_position"] == status["as_of_position"] > 0
    assert (one["result"], one["result_step"]) == (1, "second")
    assert (one["path"], one["version"], listed[0]["version"]) == ("tests/two", 1, 1)
    assert one["ended_at"] is not None


async def test_waiting_for_an_end_returns_when_it_comes(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    waiting = asyncio.create_task(server.call("GET", f"/api/executions/{name}?wait=30", status=200))
    await work_off(server, {"size": 3}, 1)
    assert (await waiting)["status"] == "COMPLETED"


async def test_a_wait_beyond_its_bound_is_refused(server: Server) -> None:
    problem = await server.call("GET", "/api/executions/1234567890123?wait=61", status=400)
    assert problem["code"] == "input_invalid"


async def test_a_key_starts_one_execution_and_refuses_another_request(server: Server) -> None:
    await server.register(TWO_STEPS)
    key = {"Idempotency-Key": "order-1"}
    first = await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=key, status=201)
    again = await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=key, status=201)
    assert again["execution_id"] == first["execution_id"]
    other = {"path": "tests/two", "payload": {"size": 4}}
    problem = await server.call("POST", "/api/execute", other, headers=key, status=422)
    assert problem["code"] == "idempotency_key_reused"


async def test_a_key_used_by_many_at_once_starts_one_execution(server: Server) -> None:
    await server.register(TWO_STEPS)
    key = {"Idempotency-Key": "at-once"}
    calls = [server.call("POST", "/api/execute", {"path": "tests/two"}, headers=key, status=201) for _ in range(8)]
    answers = await asyncio.gather(*calls)
    assert len({answer["execution_id"] for answer in answers}) == 1


async def test_a_batch_starts_what_it_can_and_says_what_it_cannot(server: Server) -> None:
    await server.register(TWO_STEPS)
    body = {
        "executions": [{"path": "tests/two"}, {"path": "tests/none"}, {"path": "tests/two", "workload": {"size": 1}}]
    }
    results = (await server.call("POST", "/api/execute/batch", body, status=200))["results"]
    assert [bool(result["started"]) for result in results] == [True, False, True]
    assert results[1]["problem"]["code"] == "not_found"
    assert results[2]["started"]["workload"]["size"] == 1


async def test_the_list_is_cut_into_pages_and_filtered(server: Server) -> None:
    await server.register(TWO_STEPS)
    await server.register(LOOP)
    parent = await server.start("tests/two")
    names = [await server.start("tests/loop", parent_execution_id=parent) for _ in range(3)]
    first = await server.call("GET", "/api/executions?limit=2", status=200)
    second = await server.call("GET", f"/api/executions?limit=2&cursor={first['next_cursor']}", status=200)
    listed = [one["execution_id"] for one in first["executions"] + second["executions"]]
    assert listed == [*reversed(names), parent]
    await server.call("POST", f"/api/executions/{names[0]}/cancel", {"reason": "enough"}, status=200)
    children = await server.call("GET", f"/api/executions?parent_execution_id={parent}&status=RUNNING", status=200)
    assert [one["execution_id"] for one in children["executions"]] == [names[2], names[1]]
    assert (await server.call("GET", "/api/executions?path=tests/two", status=200))["executions"][0][
        "execution_id"
    ] == parent


async def test_a_cancellation_reaches_what_the_execution_started(server: Server) -> None:
    await server.register(TWO_STEPS)
    parent = await server.start("tests/two")
    child = await server.start("tests/two", parent_execution_id=parent)
    answer = await server.call("POST", f"/api/executions/{parent}/cancel", {"reason": "no need"}, status=200)
    assert (answer["status"], answer["cancelled"]) == ("CANCELLED", [parent, child])
    again = await server.call("POST", f"/api/executions/{parent}/cancel", status=200)
    assert again["cancelled"] == []
    check = await server.call("GET", f"/api/executions/{child}/cancellation-check", status=200)
    assert check["cancelled"] is True


async def test_nothing_is_started_for_a_parent_that_was_cancelled(server: Server) -> None:
    """INV-140."""
    await server.register(TWO_STEPS)
    parent = await server.start("tests/two")
    body, key = {"path": "tests/two", "parent_execution_id": parent}, {"Idempotency-Key": "child-1"}
    child = await server.call("POST", "/api/execute", body, headers=key, status=201)
    below = await server.start("tests/two", parent_execution_id=child["execution_id"])
    await server.call("POST", f"/api/executions/{parent}/cancel", {"cascade": False}, status=200)
    assert await server.start("tests/two", parent_execution_id=below), "those go on that were to"
    problem = await server.call("POST", "/api/execute", body, status=409)
    assert problem["detail"] == f"execution {parent} starts nothing any more: it was cancelled"
    again = await server.call("POST", "/api/execute", body, headers=key, status=201)
    assert again["execution_id"] == child["execution_id"]


async def test_a_child_that_would_be_too_deep_is_refused(server: Server) -> None:
    """INV-140."""
    await server.register(TWO_STEPS)
    server.services.engine.executions.max_child_depth = 2
    top = above = await server.start("tests/two")
    for _ in range(2):
        above = await server.start("tests/two", parent_execution_id=above)
    body = {"path": "tests/two", "parent_execution_id": above}
    problem = await server.call("POST", "/api/execute", body, status=400)
    assert problem["code"] == "child_too_deep"
    assert "tests/two" in problem["detail"]
    assert await server.start("tests/two", parent_execution_id=top)


async def test_an_ended_execution_can_be_run_again_with_a_changed_workload(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    problem = await server.call("POST", f"/api/executions/{name}/rerun", status=409)
    assert problem["hint"] == "cancel it first"
    await work_off(server, {"size": 3}, 1)
    again = await server.call(
        "POST", f"/api/executions/{name}/rerun", {"from_step": "second", "payload": {"size": 8}}, status=201
    )
    assert again["workload"]["size"] == 8
    view = await server.call("GET", f"/api/executions/{again['execution_id']}", status=200)
    assert view["active_steps"] == ["second"]


async def test_a_key_runs_an_execution_again_once_and_refuses_another_request(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await work_off(server, {"size": 3}, 1)
    path, key = f"/api/executions/{name}/rerun", {"Idempotency-Key": "again-1"}
    calls = [server.call("POST", path, {"from_step": "second"}, headers=key, status=201) for _ in range(4)]
    first = {answer["execution_id"] for answer in await asyncio.gather(*calls)}
    await work_off(server, 1)
    again = await server.call("POST", path, {"from_step": "second"}, headers=key, status=201)
    assert first == {again["execution_id"]}
    listed = await server.call("GET", "/api/executions?path=tests/two", status=200)
    assert len(listed["executions"]) == 2
    for other in ({}, {"from_step": "second", "payload": {"size": 4}}):
        problem = await server.call("POST", path, other, headers=key, status=422)
        assert problem["code"] == "idempotency_key_reused"
    own = {"path": "tests/two", "payload": {"size": 3}}
    await server.call("POST", "/api/execute", own, headers={"Idempotency-Key": "start-1"}, status=201)
    await server.call("POST", path, {}, headers={"Idempotency-Key": "start-1"}, status=422)


async def test_finalizing_leaves_open_work_alone(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    assert (await server.call("POST", f"/api/executions/{name}/finalize", status=200))["status"] == "RUNNING"


async def test_the_events_of_an_execution_come_in_pages(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await work_off(server, {"size": 3}, 1)
    found, position = [], 1
    while position is not None:
        page = await server.call("GET", f"/api/executions/{name}/events?limit=3&from_position={position}", status=200)
        found += page["events"]
        position = page["next_position"]
    assert found[0]["event_type"] == "execution.requested"
    assert [event["position"] for event in found] == sorted({event["position"] for event in found})
    issued = await server.call("GET", f"/api/executions/{name}/events?type=command.issued", status=200)
    assert len(issued["events"]) == 2


async def test_the_shared_values_of_an_execution_can_be_read(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await work_off(server, {"size": 3})
    assert (await server.call("GET", f"/api/vars/{name}", status=200))["ctx"] == {"seen": 3}
    assert (await server.call("GET", f"/api/vars/{name}/seen", status=200))["value"] == 3
    assert (await server.call("GET", f"/api/vars/{name}/none", status=404))["code"] == "not_found"


async def test_a_template_can_be_tried_against_an_execution(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await work_off(server, {"size": 3})
    events = (await server.call("GET", f"/api/executions/{name}/events?limit=1000", status=200))["events"]
    template = {
        "sum": "{{ workload.size + ctx.seen + first.size }}",
        "said": ["{{ output.data }} of {{ execution_id }}"],
    }
    body = {"execution_id": name, "template": template, "names": {"output": {"data": "some"}}}
    told = await server.call("POST", "/api/context/render", body, status=200)
    assert told["rendered"] == {"sum": 9, "said": [f"some of {name}"]}
    assert told["as_of_position"] == max(event["position"] for event in events)
    absent = {"execution_id": name, "template": "{{ keychain.shop.token }}"}
    problem = await server.call("POST", "/api/context/render", absent, status=400)
    assert "'keychain.shop' is undefined" in problem["detail"]
    for wrong in ("{{ 1 +", "{{ range }}", "{{ ''.__class__.__mro__ }}", "{{ 10 ** 10 ** 10 }}"):
        body = {"execution_id": name, "template": wrong}
        assert (await server.call("POST", "/api/context/render", body, status=400))["code"] == "template_failed"
    unknown = {"execution_id": "1234567890123", "template": "x"}
    await server.call("POST", "/api/context/render", unknown, status=404)
    assert (await server.call("GET", f"/api/executions/{name}/events?limit=1000"))["events"] == events


async def test_a_playbook_is_named_in_one_way(server: Server) -> None:
    registered = await server.register(TWO_STEPS)
    catalog_id = registered["catalog_id"]
    await server.call("POST", "/api/execute", {"catalog_id": catalog_id}, status=201)
    await server.call("POST", "/api/execute", {"catalog_id": catalog_id, "version": 2}, status=400)
    await server.call("POST", "/api/execute", {"path": "tests/two", "catalog_id": catalog_id}, status=400)
    await server.call("POST", "/api/execute", {"path": "tests/two", "paylod": {}}, status=400)
    both = {"path": "tests/two", "payload": {"size": 1}, "workload": {"size": 2}}
    await server.call("POST", "/api/execute", both, status=400)


async def test_an_execution_explains_itself(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    told = await server.call("GET", f"/api/executions/{name}/why", status=200)
    assert told["status"] == "RUNNING"
    assert all(sentence["event_ids"] for sentence in told["sentences"])
    step = await server.call("GET", f"/api/executions/{name}/why?step=second", status=200)
    assert step["sentences"]
    await server.call("GET", f"/api/executions/{name}/why?step=none", status=400)
