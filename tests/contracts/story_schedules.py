"""The part of the whole story that is about schedules and slots: every way their rows change, one after another."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Append, Transition
from noetl.testing.samples.executions import one, token
from noetl.testing.samples.pipelines import Piped, named

DAY = "2026-03-01T{:02}:00:00Z"


def some_schedules(dag: Piped) -> list[Transition]:
    """Schedules that come, change, rest and go; slots that end well, fail, are lost, are tried again, and are pruned."""
    held = [token() for _ in range(6)]
    return [
        _set(dag, "a", "schedule.created", 1),
        _schedule(dag, "a", "slot.claimed", _claim(1, 1, held[0].upper(), next_plan=DAY.format(2))),
        _schedule(
            dag, "a", "slot.attempt_failed",
            {"plan_time": DAY.format(1), "attempt": 1, "error_code": "run_timeout", "delay_seconds": 0.1234565},
            error="took too long",
        ),
        _schedule(dag, "a", "slot.claimed", _claim(1, 2, held[1])),
        _schedule(
            dag, "a", "slot.abandoned",
            {"plan_time": DAY.format(1), "attempt": 2, "error_code": "stale_timeout", "delay_seconds": 0},
            error="its runner was lost",
        ),
        _schedule(dag, "a", "slot.claimed", _claim(1, 3, held[2])),
        _schedule(
            dag, "a", "slot.succeeded",
            {"plan_time": DAY.format(1), "attempt": 3, "run_id": "77", "rows_affected": 5}, result={"ü": [1.5, None]},
        ),
        _schedule(
            dag, "a", "slot.skipped",
            {"reason": "latest_only", "count": 3, "first_plan": DAY.format(2), "last_plan": DAY.format(4),
             "next_plan": DAY.format(5)},
        ),
        _together(
            dag, "a",
            ("slot.claimed", _claim(5, 1, held[3], next_plan=DAY.format(6))),
            ("slot.claimed", _claim(6, 1, held[4], next_plan=DAY.format(7))),
            ("slot.failed", {"plan_time": DAY.format(5), "attempt": 1, "error_code": "stale_timeout"}),
        ),
        _schedule(
            dag, "a", "slot.pruned", {"succeeded_before": "2999-01-01T00:00:00Z", "failed_before": DAY.format(1)}
        ),
        _schedule(dag, "a", "schedule.paused", {}),
        _set(dag, "a", "schedule.changed", 9, mode="every_plan", delay_seconds=1.5),
        _schedule(dag, "a", "schedule.resumed", {"next_plan": DAY.format(10)}),
        _set(dag, "b", "schedule.created", 1, name="other"),
        _schedule(dag, "b", "schedule.paused", {}),
        _schedule(dag, "b", "schedule.removed", {}),
        _set(dag, "b", "schedule.created", 3, name="other", allow_stale_reentry=False),
        _schedule(dag, "b", "slot.claimed", {**_claim(3, 1, held[5]), "manual": True}),
        _schedule(dag, "b", "schedule.removed", {}),
    ]  # fmt: skip


def _set(dag: Piped, which: str, kind: str, hour: int, **changed: Any) -> Transition:
    meta = {
        "schedule_id": named(which),
        "name": "nightly",
        "kind": "playbook",
        "scope_kind": "global",
        "scope_id": "global",
        "expression": "0 * * * *",
        "timezone": "Europe/Berlin",
        "mode": "latest_only",
        "delay_seconds": 0,
        "catch_up_seconds": 3600,
        "max_plans_per_tick": 10,
        "run_timeout_seconds": 1.5,
        "stale_timeout_seconds": 30,
        "heartbeat_seconds": 1,
        "max_attempts": 5,
        "next_plan": DAY.format(hour),
        **changed,
    }
    context = {"target": {"path": "jobs/nightly", "workload": {"ü": 1e-7}}, "retry_backoff": [1, 2.5]}
    return _schedule(dag, which, kind, meta, context=context)


def _claim(hour: int, attempt: int, held: str, **more: Any) -> dict[str, Any]:
    return {
        "plan_time": DAY.format(hour),
        "attempt": attempt,
        "max_attempts": 5,
        "worker": "s1",
        "lease_token": held,
        "lease_seconds": 30,
        **more,
    }


def _schedule(dag: Piped, which: str, kind: str, meta: dict[str, Any], **fields: Any) -> Transition:
    return one(dag.event(f"schedule/{named(which)}", kind, meta, node_name=None, **fields))


def _together(dag: Piped, which: str, *told: tuple[str, dict[str, Any]]) -> Transition:
    drafts = [dag.event(f"schedule/{named(which)}", kind, meta, node_name=None) for kind, meta in told]
    return Transition((Append(drafts[0].stream, drafts),))
