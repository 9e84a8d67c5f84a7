"""Schedules over the API: made, changed, looked at, paused, run and removed, by those who may."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.integration.api.serving import HOME, TWO_STEPS, Server, running

from noetl.services.schedule.handlers.port import PlatformJobs
from noetl.services.schedule.handlers.starts import StartPlaybook
from noetl.services.schedule.scheduler import Scheduler
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

NIGHTLY: dict[str, Any] = {
    "name": "ops/nightly",
    "playbook": "tests/two",
    "expression": "0 6 * * *",
    "timezone": "Europe/Berlin",
    "workload": {"size": 5},
}


async def test_a_schedule_is_made_changed_looked_at_and_removed(server: Server) -> None:
    await server.register(TWO_STEPS)
    made = await server.call("POST", "/api/schedules", NIGHTLY, status=200)
    assert (made["changed"], made["kind"], made["scope"]) == (True, "playbook", "global/global")
    assert (await server.call("POST", "/api/schedules", NIGHTLY, status=200))["changed"] is False
    later = await server.call("POST", "/api/schedules", {**NIGHTLY, "expression": "0 7 * * *"}, status=200)
    assert (later["changed"], later["expression"]) == (True, "0 7 * * *")
    shown = await server.call("GET", "/api/schedules/ops/nightly?coming=3", status=200)
    assert shown["coming"][0] == shown["next_plan"]
    assert len(shown["coming"]) == 3
    assert (await server.call("POST", "/api/schedules/ops/nightly/pause", status=200))["next_plan"] is None
    listed = await server.call("GET", "/api/schedules", status=200)
    assert [(one["name"], one["paused"], one["last"]) for one in listed["schedules"]] == [("ops/nightly", True, None)]
    assert (await server.call("POST", "/api/schedules/ops/nightly/resume", status=200))["paused"] is False
    assert await server.call("GET", "/api/schedules/ops/nightly/slots", status=200) == {
        "slots": [],
        "next_before": None,
    }
    await server.call("DELETE", "/api/schedules/ops/nightly", status=204)
    await server.call("GET", "/api/schedules/ops/nightly", status=404)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"expression": "0 0 30 2 *"}, 422),
        ({"timezone": "Moon"}, 422),
        ({"name": "no name"}, 422),
        ({"playbook": "tests/none"}, 404),
        ({"max_attempts": 0}, 422),
        ({"often": True}, 422),
    ],
)
async def test_what_cannot_be_kept_is_refused(server: Server, changes: dict[str, Any], status: int) -> None:
    await server.register(TWO_STEPS)
    problem = await server.call("POST", "/api/schedules", {**NIGHTLY, **changes})
    assert problem["status"] in (status, 400), problem
    assert (await server.call("GET", "/api/schedules", status=200))["schedules"] == []


async def test_a_schedule_is_run_now_and_its_slot_is_told(server: Server) -> None:
    services = server.services
    handlers: dict[Any, Any] = {"playbook": StartPlaybook(services.engine)}
    scheduler = Scheduler(
        services.worker_database, services.ledger, lambda count: [services.mint() for _ in range(count)], PRODUCER,
        handlers, PlatformJobs(),
    )  # fmt: skip
    scheduler.running.start()
    try:
        async with running(
            dataclasses.replace(services, scheduler=scheduler), server.projections, auth=False
        ) as running_one:
            await running_one.register(TWO_STEPS)
            await running_one.call("POST", "/api/schedules", NIGHTLY, status=200)
            slot = await running_one.call("POST", "/api/schedules/ops/nightly/run", status=200)
            assert (slot["status"], slot["manual"]) == ("SUCCESS", True)
            state = await services.engine.executions.state(HOME, int(slot["run_id"]))
            assert state.workload["size"] == 5
            (told,) = (await running_one.call("GET", "/api/schedules/ops/nightly/slots", status=200))["slots"]
            assert told == slot
            await services.engine.cancel(HOME, state.execution_id, reason="over", by="tests")
    finally:
        await scheduler.running.stop()


async def test_readers_change_nothing_and_a_server_without_schedules_says_so(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    """INV-46."""
    await guarded.call("GET", "/api/schedules", status=200, headers=bearers["reader"])
    for method, path in (
        ("POST", "/api/schedules"),
        ("POST", "/api/schedules/x/run"),
        ("POST", "/api/schedules/x/pause"),
        ("POST", "/api/schedules/x/resume"),
        ("DELETE", "/api/schedules/x"),
    ):
        await guarded.call(method, path, NIGHTLY, status=403, headers=bearers["reader"])
        await guarded.call(method, path, NIGHTLY, status=403, headers=bearers["worker"])
    answer = await guarded.call("POST", "/api/schedules/x/run", status=404, headers=bearers["writer"])
    assert answer["detail"] == "this server runs no schedules"
