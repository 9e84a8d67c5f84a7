"""Changing data over the API: invalidations, backfills, what was missed, what operators keep."""

from __future__ import annotations

import asyncio

from tests.integration.api.serving import Server
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed


async def test_a_partition_is_invalidated_and_worked_off(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    body = {"partition_key": "day=1", "reason": "correction", "note": "ü"}
    wrong = await server.call("POST", "/api/datasets/shop.clean.0/invalidate", body, status=201)
    assert (wrong["status"], wrong["tasks"], wrong["done"]) == ("open", {"shop.clean": 1}, {})
    assert await testbed.work(salt="x") == ["clean/day=1", "totals/all"]
    run = await server.call("GET", f"/api/dags/shop/runs/{wrong['invalidation_id']}?wait=5", status=200)
    assert run["status"] == "completed"
    closed = await server.call("GET", f"/api/invalidations/{wrong['invalidation_id']}", status=200)
    assert (closed["status"], closed["done"], closed["note"]) == ("closed", {"shop.clean": 1}, "ü")
    where = {"where": "amount:..5"}
    await server.call("POST", "/api/datasets/shop.orders.0/invalidate", where, status=201)
    page = await server.call("GET", "/api/invalidations?limit=1&status=open", status=200)
    assert (page["invalidations"][0]["row_filter"], page["next_cursor"]) == ({"amount": {"lt": 5}}, None)
    page = await server.call("GET", "/api/invalidations?limit=1", status=200)
    rest = await server.call("GET", f"/api/invalidations?cursor={page['next_cursor']}", status=200)
    assert [one["invalidation_id"] for one in rest["invalidations"]] == [wrong["invalidation_id"]]
    for path, body, status in (
        ("/api/datasets/nope/invalidate", {"partition_key": "a"}, 404),
        ("/api/datasets/shop.clean.0/invalidate", {}, 400),
        ("/api/datasets/shop.clean.0/invalidate", {"partition_key": "day=1", "reason": "whim"}, 400),
        ("/api/datasets/shop.clean.0/invalidate", {"partition_key": "day=99"}, 404),
    ):
        assert "detail" in await server.call("POST", path, body, status=status)


async def test_a_backfill_is_previewed_requested_and_looked_after(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    path = "/api/datasets/shop.orders.0/backfill"
    asked = {"start": "1", "end": "6", "max_in_flight": 2}
    dry = await server.call("POST", path, {**asked, "dry_run": True}, status=200)
    assert (dry["plan"]["total"], dry["plan"]["standing"], dry["backfill"]) == (5, 2, None)
    answer = await server.call("POST", path, asked, status=201)
    one = answer["backfill"]["backfill_id"]
    assert (answer["backfill"]["status"], answer["backfill"]["queued"]) == ("running", 5)
    paused = await server.call("POST", f"/api/backfills/{one}/pause", {"reason": "lunch"}, status=200)
    assert (paused["status"], paused["error"]) == ("paused", "lunch")
    await server.call("POST", f"/api/backfills/{one}/pause", status=409)
    assert (await server.call("POST", f"/api/backfills/{one}/resume", status=200))["status"] == "running"
    listed = await server.call("GET", "/api/backfills?status=running", status=200)
    assert [found["backfill_id"] for found in listed["backfills"]] == [one]
    cancelled = await server.call("POST", f"/api/backfills/{one}/cancel", status=200)
    assert (cancelled["status"], cancelled["progress"]["open"]) == ("cancelled", 0)
    assert (await server.call("GET", f"/api/backfills/{one}", status=200))["ended_at"] is not None
    await server.call("GET", "/api/backfills/7", status=404)
    refused = await server.call("POST", path, {"start": "6", "end": "1"}, status=400)
    assert "nothing from 6 to 1" in refused["detail"]


async def test_a_change_under_a_key_is_made_once(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    for path, id_of, asked, other in (
        (
            "/api/datasets/shop.clean.0/invalidate",
            lambda answer: answer["invalidation_id"],
            asked_of_day(1),
            asked_of_day(2),
        ),
        (
            "/api/datasets/shop.orders.0/backfill",
            lambda answer: answer["backfill"]["backfill_id"],
            {"start": "1", "end": "3"},
            {"start": "1", "end": "4"},
        ),
    ):
        key = {"Idempotency-Key": f"key of {path}"}
        calls = [server.call("POST", path, asked, headers=key, status=201) for _ in range(3)]
        assert len({id_of(answer) for answer in await asyncio.gather(*calls)}) == 1
        problem = await server.call("POST", path, other, headers=key, status=422)
        assert problem["code"] == "idempotency_key_reused"
    taken = {"Idempotency-Key": "key of /api/datasets/shop.orders.0/backfill"}
    await server.call("POST", "/api/datasets/shop.clean.0/invalidate", asked_of_day(1), headers=taken, status=422)


def asked_of_day(day: int) -> dict[str, str]:
    """Return the request by which a day is said to be wrong."""
    return {"partition_key": f"day={day}"}


async def test_what_was_missed_and_what_operators_keep_is_told(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    found = await server.call("POST", "/api/reconcile", {"dag": "shop"}, status=200)
    assert (found["dags"][0]["partitions"], found["closed"], found["undelivered"]) == ([], [], 0)
    await server.call("POST", "/api/reconcile", {"dag": "nope"}, status=404)
    state = await server.call("GET", "/api/dags/shop/jobs/clean/state", status=200)
    assert (state["job"], state["states"]) == ("clean", [])
    await server.call("GET", "/api/dags/shop/jobs/nope/state", status=404)


async def test_only_writers_change_data(
    guarded: Server, bearers: dict[str, dict[str, str]], testbed: TaskTestbed
) -> None:
    """INV-46."""
    await testbed.built()
    reader = bearers["reader"]
    for path in ("/api/datasets/totals/invalidate", "/api/datasets/totals/backfill", "/api/reconcile"):
        await guarded.call("POST", path, {}, status=403, headers=reader)
    await guarded.call("POST", "/api/backfills/7/cancel", status=403, headers=reader)
    await guarded.call("GET", "/api/backfills", status=200, headers=reader)
    await guarded.call("GET", "/api/invalidations", status=200, headers=reader)
    await guarded.call("GET", "/api/invalidations", status=403, headers=bearers["worker"])
    made = await guarded.call(
        "POST", "/api/datasets/totals/invalidate", {"partition_key": "all"}, status=201, headers=bearers["writer"]
    )
    assert made["requested_by"] != ""
