"""Errors as problem details: a status, a stable code, and never the text of something unexpected."""

from __future__ import annotations

import logging
import uuid

import pytest
from tests.integration.api.serving import HOME, LOOP, TWO_STEPS, Server

from noetl.api.problems import status_of
from noetl.api.routes.all_routes import endpoints
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant
from noetl.errors import (
    Conflict,
    Corrupt,
    Denied,
    Erased,
    InputError,
    KeyReused,
    LeaseLost,
    NoetlError,
    NotFound,
    PayloadMissing,
    PlaybookInvalid,
    Unavailable,
    Unsupported,
)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InputError, 400),
        (PlaybookInvalid, 400),
        (Denied, 403),
        (NotFound, 404),
        (PayloadMissing, 404),
        (Conflict, 409),
        (LeaseLost, 409),
        (Erased, 410),
        (KeyReused, 422),
        (Corrupt, 500),
        (Unsupported, 501),
        (Unavailable, 503),
    ],
)
def test_every_error_has_its_status(kind: type[NoetlError], status: int) -> None:
    assert status_of(kind("why")) == status


async def test_an_error_is_answered_as_problem_details(server: Server) -> None:
    async with server.session.get(f"{server.url}/api/executions/1234567890123") as answer:
        assert answer.status == 404
        assert answer.content_type == "application/problem+json"
        problem = await answer.json(content_type=None)
    assert problem["type"] == "urn:noetl:problem:not_found"
    assert (problem["status"], problem["title"]) == (404, "There is no such thing.")
    assert "1234567890123" in problem["detail"]
    assert problem["hint"]


async def test_unknown_addresses_and_methods_are_problems_too(server: Server) -> None:
    unknown = await server.call("GET", "/api/nothing", status=404)
    assert (unknown["code"], unknown["detail"]) == ("not_found", "there is no route GET /api/nothing")
    assert "/api/openapi.json" in unknown["hint"]
    refused = await server.call("DELETE", "/api/execute", status=405)
    assert (refused["code"], refused["detail"]) == ("method_not_allowed", "there is no route DELETE /api/execute")


async def test_a_key_that_would_not_be_heeded_is_refused(server: Server) -> None:
    key, body = {"Idempotency-Key": "once"}, {"name": "ci", "role": "reader"}
    problem = await server.call("POST", "/api/tokens", body, headers={**key, **server.local}, status=400)
    assert "heeds no Idempotency-Key" in problem["detail"]
    assert problem["hint"].startswith("leave the header out")
    assert (await server.call("GET", "/api/tokens", headers=key, status=200))["tokens"] == []
    await server.call("POST", "/api/tokens", body, headers=server.local, status=201)
    # What comes to the same when it is done twice takes the header: clients send it with every POST.
    for _ in range(2):
        await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, headers=key)
    assert len((await server.call("POST", "/api/catalog/list", {}, headers=key, status=200))["entries"]) == 1


def test_routes_that_refuse_a_key_are_few_and_known() -> None:
    refusing = {one.template for one in endpoints() if one.refuses_key}
    assert refusing == {
        "/api/alerts/channels/{name}/test",
        "/api/alerts/deliveries/{delivery_id}/retry",
        "/api/dags/{dag}/rollback",
        "/api/outbox/rearm",
        "/api/schedules/{name}/run",
        "/api/tasks/{task_id}/retry",
        "/api/tokens",
    }


async def test_all_problems_of_a_playbook_are_told_at_once(server: Server) -> None:
    source = TWO_STEPS.replace("kind: python", "kind: pyton")
    problem = await server.call("POST", "/api/catalog/register", {"content": source}, status=400)
    assert problem["code"] == "playbook_invalid"
    assert len(problem["problems"]) == 2
    assert "did you mean" in problem["problems"][0]


async def test_an_unexpected_error_shows_an_id_that_is_in_the_log_and_not_its_text(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(server.services.catalog, "versions", broken)
    with caplog.at_level(logging.ERROR):
        problem = await server.call("GET", "/api/catalog/tests/two", status=500)
    assert "hunter2" not in str(problem)
    assert problem["id"] in caplog.text


@pytest.mark.parametrize(
    "body", ["{", '{"path": 1}', '{"path": "a\\u0000b"}', "[]", '"\\ud800"', "nonsense", "[" * 100_000]
)
async def test_a_body_that_is_not_what_is_asked_for_is_refused(server: Server, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    async with server.session.post(f"{server.url}/api/execute", data=body, headers=headers) as answer:
        assert answer.status == 400, await answer.text()


async def test_only_json_is_taken_and_only_up_to_a_bound(server: Server) -> None:
    async with server.session.post(f"{server.url}/api/execute", data='{"path": "a"}') as answer:
        assert answer.status == 400
        assert "application/json" in await answer.text()
    huge = {"path": "tests/two", "payload": {"text": "x" * server.services.limits.body_bytes}}
    assert (await server.call("POST", "/api/execute", huge, status=413))["code"] == "too_large"


@pytest.mark.parametrize(
    "path",
    [
        "/api/executions?limit=0",
        "/api/executions?colour=red",
        "/api/executions/abc",
        "/api/executions/99999999999999999999",
        "/api/executions?path=%00",
    ],
)
async def test_a_parameter_that_is_not_valid_is_refused(server: Server, path: str) -> None:
    assert (await server.call("GET", path, status=400))["code"] == "input_invalid"


async def test_a_lost_lease_says_in_its_code_why(server: Server) -> None:
    await server.register(LOOP)
    name = await server.start("tests/loop")
    slot, frame = await _leased(server)
    stolen = {"execution_id": name, "command_id": slot.command_id, "attempt": 1, "token": str(uuid.uuid4())}
    report = {"command_id": slot.command_id, "attempt": 1, "status": "ok"}
    complete = {"lease": stolen, "worker_id": "w2", "report": report}
    assert (await server.call("POST", "/api/commands/complete", complete, status=409))["code"] == "active_claim"
    held = {"execution_id": name, "attempt": 1, "token": str(uuid.uuid4())}
    place = f"/api/frames/{frame.frame_id}"
    body = {"lease": held, "command": stolen, "worker_id": "w2", "report": {"row_count": 2}}
    assert (await server.call("POST", f"{place}/commit", body, status=409))["code"] == "frame_owner_mismatch"
    assert (await server.call("POST", f"{place}/heartbeat", {"lease": held}, status=409))[
        "code"
    ] == "frame_owner_mismatch"
    mine = {**held, "token": frame.token}
    beat = await server.call("POST", f"{place}/heartbeat", {"lease": mine}, status=200)
    assert beat["lease_until"].endswith("Z")
    await server.call("POST", f"/api/executions/{name}/cancel", status=200)
    assert (await server.call("POST", f"{place}/commit", {**body, "lease": mine}, status=409))[
        "code"
    ] == "frame_already_terminal"
    assert (await server.call("POST", "/api/commands/complete", complete, status=409))["code"] == "already_terminal"


async def test_a_slot_cannot_take_frames_of_another_stage(server: Server) -> None:
    await server.register(LOOP)
    name = await server.start("tests/loop")
    slot, _ = await _leased(server)
    lease = {"execution_id": name, "command_id": slot.command_id, "attempt": 1, "token": slot.token}
    body = {"lease": lease, "worker_id": "w1", "locality": {"prefer_node": "n1", "max_distance": "zone"}}
    problem = await server.call("POST", "/api/stages/1234567890123/frames/claim", body, status=409)
    assert problem["code"] == "stage_not_open"
    assert slot.loop is not None
    many = {**body, "requested_count": 10}
    claimed = await server.call("POST", f"/api/stages/{slot.loop.stage_id}/frames/claim", many, status=200)
    assert [frame["first_index"] for frame in claimed["frames"]] == [2, 4]
    assert isinstance(claimed["frames"][0]["frame_id"], str)


async def _leased(server: Server) -> tuple[CommandGrant, FrameGrant]:
    dispatch = server.services.engine.dispatch(HOME)
    (slot,) = await dispatch.claim("w1", 1, 5.0)
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    return slot, frame
