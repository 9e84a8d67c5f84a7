"""The other nouns over the API: catalog, credentials, events, workers, stages, replay, results."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.integration.api.serving import HOME, LOOP, ONE_TRY, SHARED, TWO_STEPS, Server

from noetl.engine.dispatch.grants import FrameReport
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import Denied
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.services.credentials.sealed_answers import open_answer
from noetl.services.credentials.secret import Secret


async def test_a_playbook_is_registered_listed_removed_and_restored(server: Server) -> None:
    first = await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, status=201)
    again = await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, status=200)
    assert (first["created"], again["created"], again["catalog_id"]) == (True, False, first["catalog_id"])
    second = await server.register(TWO_STEPS.replace("size: 3", "size: 4"))
    await server.register(LOOP)
    assert second["version"] == 2
    listed = await server.call("POST", "/api/catalog/list", {"prefix": "tests/", "limit": 1}, status=200)
    assert ([one["path"] for one in listed["entries"]], listed["next_after"]) == (["tests/loop"], "tests/loop")
    rest = await server.call("POST", "/api/catalog/list", {"after": "tests/loop"}, status=200)
    assert ([one["version"] for one in rest["entries"]], rest["next_after"]) == ([2], None)
    await server.call("POST", "/api/catalog/delete", {"path": "tests/two", "version": 2}, status=200)
    assert (await server.call("GET", "/api/catalog/tests/two", status=200))["version"] == 1
    await server.call("POST", "/api/catalog/restore", {"path": "tests/two", "version": 2}, status=200)
    newest = await server.call("GET", "/api/catalog/tests/two", status=200)
    assert (newest["version"], "size: 4" in newest["content"]) == (2, True)
    assert (await server.call("GET", "/api/catalog/tests/two?version=1", status=200))["version"] == 1
    assert (await server.call("GET", f"/api/catalog/{first['catalog_id']}", status=200))["version"] == 1
    versions = await server.call("POST", "/api/catalog/resource", {"path": "tests/two"}, status=200)
    assert [one["version"] for one in versions["versions"]] == [1, 2]
    await server.call("POST", "/api/catalog/resource", {"path": "tests/none"}, status=404)


async def test_a_form_can_be_made_from_a_workload(server: Server) -> None:
    await server.register(TWO_STEPS)
    answer = await server.call("GET", "/api/catalog/tests/two/ui_schema", status=200)
    assert answer["schema"]["properties"] == {
        "size": {"type": "integer", "default": 3},
        "nested": {"type": "object", "default": {"a": 1, "b": 2}},
    }


async def test_a_form_does_not_send_a_template_back_as_a_value(server: Server) -> None:
    templates = 'file: "f_{{ execution_id }}", db: {url: "{{ file }}"}, all: ["{{ 1 }}"]'
    await server.register(TWO_STEPS.replace("size: 3", f"size: 3, {templates}"))
    answer = await server.call("GET", "/api/catalog/tests/two/ui_schema", status=200)
    said = {"description": "Left out, it is rendered when the execution is requested."}
    assert answer["schema"]["properties"] == {
        "size": {"type": "integer", "default": 3},
        "file": said,
        "db": {"type": "object", **said},
        "all": {"type": "array", **said},
        "nested": {"type": "object", "default": {"a": 1, "b": 2}},
    }


async def test_values_of_credentials_never_come_out_but_sealed_with_a_workers_token(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    """INV-132."""
    body = {"name": "db", "type": "postgres", "data": {"user": "u", "password": "hunter2", "host": "h", "db_name": "d"}}
    kept = await guarded.call("POST", "/api/credentials", body, headers=bearers["admin"], status=201)
    assert "hunter2" not in str(kept)
    for role in ("reader", "writer", "admin"):
        shown = await guarded.call("GET", "/api/credentials/db", headers=bearers[role], status=200)
        assert shown["fields"] == ["db_name", "host", "password", "user"]
        assert "hunter2" not in str(shown)
        await guarded.call("GET", "/api/credentials/db?include_data=true", headers=bearers[role], status=400)
        await guarded.call("POST", "/api/worker/credential", {"name": "db"}, headers=bearers[role], status=403)
    assert "hunter2" not in str(await guarded.call("GET", "/api/credentials", headers=bearers["reader"], status=200))
    given = await guarded.call("POST", "/api/worker/credential", {"name": "db"}, headers=bearers["worker"], status=200)
    assert "hunter2" not in str(given)
    token = Secret(bearers["worker"]["Authorization"].removeprefix("Bearer "))
    assert open_answer(token, given["sealed"]) == body
    with pytest.raises(Denied, match="sealed its secrets for other workers"):
        open_answer(SHARED, given["sealed"])
    await guarded.call("DELETE", "/api/credentials/db", headers=bearers["admin"], status=204)
    await guarded.call("GET", "/api/credentials/db", headers=bearers["admin"], status=404)


async def test_a_server_without_tokens_seals_credentials_for_those_who_share_its_secret(server: Server) -> None:
    """INV-132."""
    body = {"name": "crm", "type": "bearer", "data": {"token": "hunter2"}}
    await server.call("POST", "/api/credentials", body, headers=server.local, status=201)
    given = await server.call("POST", "/api/worker/credential", {"name": "crm"}, status=200)
    assert "hunter2" not in str(given)
    assert open_answer(SHARED, given["sealed"]) == body
    # Whoever chooses what to seal with could open it: a token that is shown must be a worker's.
    for token in ("mine", (await server.services.tokens.create(HOME, "reads", "reader"))[0].reveal()):
        asked = server.call(
            "POST", "/api/worker/credential", {"name": "crm"}, headers={"Authorization": f"Bearer {token}"}
        )
        assert "sealed" not in await asked
    worker, _ = await server.services.tokens.create(HOME, "works", "worker")
    theirs = await server.call(
        "POST", "/api/worker/credential", {"name": "crm"}, headers={"Authorization": f"Bearer {worker.reveal()}"}
    )
    assert open_answer(worker, theirs["sealed"]) == body


async def test_a_keychain_is_resolved_for_the_worker_that_holds_the_command_and_nobody_else(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    """INV-45."""
    source = TWO_STEPS.replace("workflow:", "keychain: [{name: shop, kind: static, data: {token: x}}]\nworkflow:", 1)
    await guarded.call("POST", "/api/catalog/register", {"content": source}, headers=bearers["writer"])
    await guarded.call("POST", "/api/execute", {"path": "tests/two"}, headers=bearers["writer"], status=201)
    claimed = await guarded.call("POST", "/api/commands/claim", {"worker_id": "w1"}, headers=bearers["worker"])
    grant = claimed["commands"][0]
    lease = {name: grant[name] for name in ("execution_id", "command_id", "attempt", "token")}
    path, body = "/api/commands/keychain", {"lease": lease}
    for role in ("reader", "writer", "admin"):
        await guarded.call("POST", path, body, headers=bearers[role], status=403)
    # This server has no key to resolve it with, and says so to the holder alone.
    held = await guarded.call("POST", path, body, headers=bearers["worker"], status=501)
    assert "no master key" in held["detail"]
    stolen = {"lease": {**lease, "token": "00000000-0000-4000-8000-000000000000"}}
    await guarded.call("POST", path, stolen, headers=bearers["worker"], status=409)
    cancel = f"/api/executions/{lease['execution_id']}/cancel"
    await guarded.call("POST", cancel, headers=bearers["writer"], status=200)
    await guarded.call("POST", path, body, headers=bearers["worker"], status=409)


async def test_a_business_fact_is_recorded_once_per_key(server: Server) -> None:
    body = {"event_type": "business.invoice.posted", "aggregate_id": "inv-1", "meta": {"amount": 5}}
    key = {"Idempotency-Key": "inv-1/posted"}
    first = await server.call("POST", "/api/events", body, headers=key, status=201)
    again = await server.call("POST", "/api/events", body, headers=key, status=200)
    assert (again["event_id"], again["repeated"]) == (first["event_id"], True)
    other = await server.call("POST", "/api/events", {**body, "meta": {"amount": 6}}, headers=key, status=422)
    assert other["code"] == "idempotency_key_reused"
    stored = await server.call("GET", f"/api/events/{first['event_id']}", status=200)
    assert (stored["meta"], stored["stream_id"]) == ({"amount": 5}, "business/inv-1")
    near = await server.call(
        "GET", f"/api/events/{first['event_id']}?execution_id={stored['execution_id']}", status=200
    )
    assert near == stored
    await server.call("GET", "/api/events/1234567890123", status=404)


async def test_a_batch_of_facts_is_recorded_in_order_and_once_per_key(server: Server) -> None:
    facts = [
        {"event_type": "business.paid", "aggregate_id": f"inv-{number % 2}", "meta": {"number": number}}
        for number in range(6)
    ]
    bad = {**facts[0], "stream_id": "no such name\u0000"}
    key = {"Idempotency-Key": "batch-1"}
    first = (await server.call("POST", "/api/events/batch", {"events": [*facts, bad]}, headers=key, status=200))[
        "results"
    ]
    assert [(one["recorded"]["stream_id"], one["recorded"]["stream_version"]) for one in first[:6]] == [
        ("business/inv-0", 1), ("business/inv-1", 1), ("business/inv-0", 2),
        ("business/inv-1", 2), ("business/inv-0", 3), ("business/inv-1", 3),
    ]  # fmt: skip
    assert first[6]["problem"]["code"] == "input_invalid"
    again = (await server.call("POST", "/api/events/batch", {"events": [*facts, bad]}, headers=key, status=200))[
        "results"
    ]
    assert [one["recorded"]["event_id"] for one in again[:6]] == [one["recorded"]["event_id"] for one in first[:6]]
    assert all(one["recorded"]["repeated"] for one in again[:6])


async def test_facts_of_the_product_cannot_be_made_up(server: Server) -> None:
    body = {"event_type": "playbook.completed", "aggregate_id": "x"}
    assert (await server.call("POST", "/api/events", body, status=400))["code"] == "input_invalid"


async def test_a_fact_may_belong_to_an_execution(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    body = {"event_type": "business.noted", "aggregate_id": "n1", "execution_id": name}
    recorded = await server.call("POST", "/api/events", body, status=201)
    events = await server.call("GET", f"/api/executions/{name}/events?type=business.noted", status=200)
    assert [event["event_id"] for event in events["events"]] == [recorded["event_id"]]


async def test_a_fact_that_names_an_execution_which_is_not_there_is_refused(server: Server) -> None:
    """INV-193."""
    fact = {"event_type": "business.noted", "aggregate_id": "n1"}
    unknown = {**fact, "execution_id": "7000000000000000001"}
    # Also the second time: what users say of an execution does not make it one.
    for body in (unknown, unknown, {**fact, "stream_id": "execution/7000000000000000001/business/n1"}):
        problem = await server.call("POST", "/api/events", body, status=404)
        assert problem["detail"] == "there is no execution 7000000000000000001"
    answer = await server.call("POST", "/api/events/batch", {"events": [fact, unknown]}, status=200)
    assert [one["problem"] and one["problem"]["code"] for one in answer["results"]] == [None, "not_found"]
    root = answer["results"][0]["recorded"]["execution_id"]
    await server.call("POST", "/api/events", {**fact, "execution_id": root}, status=201)
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    body = {**fact, "execution_id": name, "stream_id": f"execution/{root}/business/n1"}
    assert "another execution" in (await server.call("POST", "/api/events", body, status=400))["detail"]
    await server.call("GET", "/api/executions/7000000000000000001/events", status=404)


async def test_workers_register_beat_and_leave(server: Server) -> None:
    body = {"worker_id": "w1", "pool": "gpu", "slots": 4, "labels": {"zone": "a"}}
    await server.call("POST", "/api/worker/pool/register", body, status=201)
    await server.call("POST", "/api/worker/pool/register", {"worker_id": "w2", "pool": "gpu", "slots": 2}, status=201)
    await server.call("POST", "/api/worker/pool/heartbeat", {"worker_id": "w1"}, status=200)
    await server.call("POST", "/api/worker/pool/heartbeat", {"worker_id": "w9"}, status=404)
    (pool,) = (await server.call("GET", "/api/worker/pools", status=200))["pools"]
    assert (pool["pool"], pool["slots"], [one["alive"] for one in pool["workers"]]) == ("gpu", 6, [True, True])
    assert pool["workers"][0]["labels"] == {"zone": "a"}
    await server.call("POST", "/api/worker/pool/deregister", {"worker_id": "w1"}, status=204)
    await server.call("POST", "/api/worker/pool/deregister", {"worker_id": "w1"}, status=204)
    (pool,) = (await server.call("GET", "/api/worker/pools", status=200))["pools"]
    assert pool["slots"] == 2


async def test_a_stage_and_its_frames_can_be_seen_while_open_and_after(server: Server) -> None:
    await server.register(LOOP)
    await server.start("tests/loop")
    dispatch = server.services.engine.dispatch(HOME)
    (slot,) = await dispatch.claim("w1", 1, 5.0)
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    stage = await server.call("GET", f"/api/stages/{frame.stage_id}", status=200)
    assert (stage["status"], stage["total_rows"], stage["frames_open"]) == ("OPEN", 5, 1)
    page = await server.call("GET", f"/api/stages/{frame.stage_id}/frames", status=200)
    (shown,) = page["frames"]
    assert (shown["frame_id"], shown["owner_worker"], shown["status"]) == (str(frame.frame_id), "w1", "LEASED")
    while frame is not None:
        report = FrameReport(row_count=frame.row_count)
        frame = await dispatch.commit_frame(slot, frame, report, worker="w1", take_next=True)
    report_of = CommandEnded(command_id=slot.command_id, attempt=slot.attempt, status="ok")
    await dispatch.complete(slot, report_of, worker="w1", take_next=False)
    assert slot.loop is not None
    await server.projections.project()
    place = f"/api/stages/{slot.loop.stage_id}"
    closed = await server.call("GET", f"{place}?execution_id={slot.execution_id}", status=200)
    assert closed == await server.call("GET", place, status=200)
    assert (closed["status"], closed["rows_done"], closed["frames_minted"]) == ("COMPLETED", 5, 3)
    await server.call("GET", "/api/stages/1234567890123", status=404)


async def test_frames_that_have_ended_are_listed_with_why_their_rows_failed(server: Server) -> None:
    await server.register(ONE_TRY)
    await server.start("tests/loop")
    dispatch = server.services.engine.dispatch(HOME)
    (slot,) = await dispatch.claim("w1", 1, 5.0)
    assert slot.loop is not None
    first = await dispatch.next_frame(slot, "w1")
    assert first is not None
    errors = [{"index": 1, "kind": "unknown", "message": "ValueError: two"}]
    report = FrameReport(row_count=2, failed_count=1, errors=errors)
    second = await dispatch.commit_frame(slot, first, report, worker="w1", take_next=True)
    assert second is not None
    await dispatch.fail_frame(second, {"kind": "timeout", "message": "too slow"}, max_attempts=1, worker="w1")
    third = await dispatch.next_frame(slot, "w1")
    assert third is not None
    place = f"/api/stages/{slot.loop.stage_id}/frames"

    async def listed(query: str, count: int) -> list[dict[str, Any]]:
        frames: list[dict[str, Any]] = (await server.call("GET", f"{place}?{query}", status=200))["frames"]
        assert len(frames) == count
        return frames

    one, two = await listed("status=ended", 2)
    assert (one["status"], one["first_index"], one["row_count"], one["failed_count"]) == ("COMMITTED", 0, 2, 1)
    assert (one["owner_worker"], one["errors"]) == ("w1", [{"index": 1, "message": "ValueError: two"}])
    assert (two["status"], two["first_index"], two["failed_count"], two["error"]) == ("FAILED", 2, 2, "too slow")
    assert await listed("status=failed", 2) == [one, two]
    assert await listed("status=committed", 1) == [one]
    assert await listed("status=ended&from_index=1", 1) == [two]
    page = await server.call("GET", f"{place}?status=ended&limit=1", status=200)
    assert (page["frames"], page["next_index"]) == ([one], 1)
    assert [frame["frame_id"] for frame in await listed("", 1)] == [str(third.frame_id)]
    await dispatch.commit_frame(slot, third, FrameReport(row_count=1), worker="w1", take_next=False)
    ended = CommandEnded(command_id=slot.command_id, attempt=slot.attempt, status="ok")
    await dispatch.complete(slot, ended, worker="w1", take_next=False)
    known = await listed(f"status=ended&execution_id={slot.execution_id}", 3)
    assert known[:2] == [one, two]
    await server.projections.project()
    assert await listed("status=ended", 3) == known
    assert await listed("status=failed", 2) == [one, two]
    seen = await server.call("GET", f"/api/executions/{slot.execution_id}", status=200)
    assert seen["error"] == "3 of 5 rows failed; first: row 1: ValueError: two"
    await server.call("GET", "/api/stages/1234567890123/frames?status=ended", status=404)


async def test_a_command_can_be_seen_while_open_and_after(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    dispatch = server.services.engine.dispatch(HOME)
    (grant,) = await dispatch.claim("w1", 1, 5.0)
    place = f"/api/commands/{name}/{grant.command_id}"
    shown = await server.call("GET", place, status=200)
    assert (shown["status"], shown["step"], shown["worker"]) == ("CLAIMED", "first", "w1")
    report = CommandEnded(command_id=grant.command_id, attempt=1, status="ok", data={"size": 1})
    following = await dispatch.complete(grant, report, worker="w1", take_next=True)
    assert following is not None
    assert (await server.call("GET", place, status=200))["status"] == "COMPLETED"
    await server.call("POST", f"/api/executions/{name}/cancel", status=200)
    other = await server.call("GET", f"/api/commands/{name}/{following.command_id}", status=200)
    assert other["status"] == "CANCELLED"
    await server.call("GET", f"/api/commands/{name}/none/1/0", status=404)


async def test_a_replay_tells_the_state_of_any_point(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    begun = await server.call("GET", f"/api/executions/{name}", status=200)
    await server.call("POST", f"/api/executions/{name}/cancel", status=200)
    now = await server.call("GET", f"/api/replay/state?execution_id={name}", status=200)
    assert now["rows"]["execution"][0]["row"]["status"] == "CANCELLED"
    assert now["checksum"]
    assert now["upcaster_registry_digest"]
    for point in (f"as_of_position={begun['as_of_position']}", f"as_of_event_id={begun['as_of_event_id']}"):
        then = await server.call("GET", f"/api/replay/state?execution_id={name}&{point}", status=200)
        assert then["rows"]["execution"][0]["row"]["status"] == "RUNNING"
    whole = await server.call("GET", "/api/replay/state?projection=all&limit=1", status=200)
    assert whole["mark"].startswith("m1.")
    both = f"/api/replay/state?execution_id={name}&as_of_position=1&as_of_event_id={begun['as_of_event_id']}"
    await server.call("GET", both, status=400)
    await server.call("GET", "/api/replay/state?as_of_time=2026-05-16T12:34:56", status=400)


async def test_a_payload_is_given_under_its_own_media_type_up_to_a_bound(
    server: Server, payloads: MemoryPayloadStore
) -> None:
    await server.register(TWO_STEPS)
    (stored,) = [ref for ref in payloads.kept if "payloads/sha256" in ref]
    uri = f"noetl://tenant/default/org/default/payloads/sha256/{stored.rpartition('/')[2]}"
    async with server.session.get(f"{server.url}/api/result/resolve", params={"ref": uri}) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/yaml"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert await answer.text() == TWO_STEPS
    other = uri.replace("org/default", "org/other")
    for route in ("resolve", "reference"):
        await server.call("GET", f"/api/result/{route}?ref={other}", status=400)
        await server.call("GET", f"/api/result/{route}?ref={uri[:-2]}00", status=404)
    ref = msgspec.convert(await server.call("GET", f"/api/result/reference?ref={uri}", status=200), PayloadRef)
    assert (ref.uri, ref.media_type, ref.bytes) == (uri, "application/yaml", len(TWO_STEPS.encode()))
    assert await payloads.fetch(HOME, ref) == TWO_STEPS.encode()


async def test_health_tells_of_the_database(server: Server) -> None:
    assert await server.call("GET", "/health", status=200) == {
        "status": "ok", "version": "1.2.3", "database": None, "schema_revision": None, "write_path": None,
        "lost_facts": None, "reason": None,
    }  # fmt: skip
    health = await server.call("GET", "/api/health", status=200)
    assert health["database"] == "ok"
    assert health["schema_revision"]
    assert health["write_path"] == "ledger"
    assert health["lost_facts"] == 0
    assert health["reason"] is None


async def test_the_pools_of_connections_are_told_apart(server: Server) -> None:
    (readers, workers) = (await server.call("GET", "/api/pool/status", status=200))["pools"]
    assert (readers["name"], workers["name"]) == ("readers", "workers")
    async with server.services.worker_database.transaction(HOME):
        (_, busy) = (await server.call("GET", "/api/pool/status", status=200))["pools"]
    assert busy["in_use"] == workers["in_use"] + 1
    assert busy["most"] >= busy["in_use"]
