"""Rules over the ledger: what they find is one alert however often they look, and is over when it no longer holds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest
from tests.integration.services.alerts.conftest import Desk, hook_rules
from tests.integration.services.alerts.receiving import Receiver

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import InputError
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.event import time_text
from noetl.model.ids import organization_root_id
from noetl.services.alerts.findings import Found, Rules
from noetl.services.alerts.judgement import Judgement
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

BROKEN = "workflow: [{step: start, tool: {kind: python, code: \"raise ValueError('no data')\"}}]"
WORKING = "workflow: [{step: start, tool: {kind: python, code: 'result = 1'}}]"
NIGHTLY = uuid5(NAMESPACE_URL, "nightly")
SOUND = "workflow: [{step: start, tool: {kind: noop}}]"


def rules(*lines: str, name: str = "ops") -> str:
    return f"kind: Alerts\nname: {name}\nrules:\n" + "".join(f"  - {{{line}}}\n" for line in lines)


async def test_a_failing_run_raises_one_alert_however_often_it_is_looked_at(desk: Desk, playbooks: Playbooks) -> None:
    """INV-79."""
    await desk.apply(rules("name: failed, on: run_failed, severity: critical"))
    state = await playbooks.run(playbook(BROKEN, "etl/nightly"))
    assert [(await desk.evaluate()).raised for _ in range(3)] == [1, 0, 0]
    (alert,) = await desk.alerts()
    assert (alert.status, alert.severity, alert.occurrences) == ("open", "critical", 1)
    assert alert.title == "etl/nightly failed"
    assert "no data" in alert.message
    assert alert.about_execution_id == state.execution_id
    assert alert.alert_key == f"rules/ops:failed:{state.execution_id}"


async def test_rounds_at_the_same_time_raise_an_alert_once(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-79."""
    await desk.apply(hook_rules(receiver))
    await playbooks.run(playbook(BROKEN))
    await desk.projected()
    found = await asyncio.gather(*(desk.evaluate() for _ in range(5)))
    assert sum(one.raised for one in found) == 1
    assert [one.occurrences for one in await desk.alerts()] == [1]
    assert len(await desk.deliveries()) == 1


async def test_a_failed_run_is_over_once_a_later_one_of_its_path_completes(desk: Desk, playbooks: Playbooks) -> None:
    await desk.apply(rules("name: failed, on: run_failed"))
    await playbooks.run(playbook(BROKEN, "etl/a"))
    await desk.evaluate()
    await playbooks.run(playbook(SOUND, "etl/b"))
    assert (await desk.evaluate()).resolved == 0
    await playbooks.run(playbook(SOUND, "etl/a"))
    assert [(one.raised, one.resolved) for one in [await desk.evaluate(), await desk.evaluate()]] == [(0, 1), (0, 0)]
    (alert,) = await desk.alerts()
    assert (alert.status, alert.resolution) == ("resolved", "the condition no longer holds")


async def test_a_rule_heeds_its_path_and_runs_of_others_only_if_they_are_named(
    desk: Desk, playbooks: Playbooks
) -> None:
    await desk.apply(
        rules(
            "name: exact, on: run_failed, path: etl/a",
            'name: below, on: run_failed, path: "etl/*"',
            "name: dag, on: run_failed, dag: a",
            "name: top, on: run_failed",
        )
    )
    parent = "workflow: [{step: start, tool: {kind: playbook, path: etl/a}}]"
    await playbooks.register(playbook(BROKEN, "etl/a"))
    await playbooks.run(playbook(parent, "top/parent"))
    await playbooks.run(playbook(BROKEN, "other/b"))
    await desk.evaluate()
    found = sorted((one.rule, one.title) for one in await desk.alerts())
    assert found == [
        ("below", "etl/a failed"),
        ("exact", "etl/a failed"),
        ("top", "other/b failed"),
        ("top", "top/parent failed"),
    ]


async def test_a_run_that_is_open_too_long_is_late_until_it_ends(desk: Desk, playbooks: Playbooks) -> None:
    """INV-79."""
    await desk.apply(rules("name: late, on: run_late, later_than: 1ms", "name: later, on: run_late, later_than: 1h"))
    entry = await playbooks.register(playbook(WORKING, "etl/slow"))
    state = await playbooks.engine.start(playbooks.scope, entry, {}, requested_by="tests")
    assert [(await desk.evaluate()).raised for _ in range(2)] == [1, 0]
    (alert,) = await desk.alerts()
    assert (alert.rule, alert.title, alert.status) == ("late", "etl/slow is late", "open")
    await playbooks.worker()
    await playbooks.finished(state.execution_id)
    assert (await desk.evaluate()).resolved == 1
    assert [one.status for one in await desk.alerts()] == ["resolved"]


async def test_a_run_that_is_not_done_by_its_time_of_day_is_told_until_it_is(desk: Desk, playbooks: Playbooks) -> None:
    await desk.apply(
        rules(
            'name: due, on: run_late, path: etl/daily, finished_by: "00:00"',
            'name: zone, on: run_late, path: etl/daily, finished_by: "00:00", timezone: Asia/Tokyo',
        )
    )
    assert [(await desk.evaluate()).raised for _ in range(2)] == [2, 0]
    assert {one.title for one in await desk.alerts()} == {"etl/daily has not finished"}
    await playbooks.run(playbook(SOUND, "etl/daily"))
    assert (await desk.evaluate()).resolved == 2


async def test_projections_that_lag_are_told_until_they_have_caught_up(desk: Desk, playbooks: Playbooks) -> None:
    await desk.apply(
        rules("name: lag, on: lag, of: projection, lag_over: 1ms", "name: far, on: lag, of: projection, lag_over: 1h")
    )
    await playbooks.run(playbook(SOUND))
    assert (await desk.parts.evaluating.all("one")).raised == 1
    (alert,) = await desk.alerts()
    assert (alert.rule, alert.subject, alert.title) == ("lag", "projection", "projections are behind the ledger")
    await desk.projected()
    assert (await desk.parts.evaluating.all("two")).resolved == 1


async def test_a_slot_that_is_not_started_or_fails_for_good_is_told(desk: Desk) -> None:
    """INV-79."""
    await desk.apply(
        rules(
            "name: missed, on: slot_missed, schedule: nightly",
            "name: late, on: slot_missed, schedule: nightly, later_than: 1m",
            "name: other, on: slot_missed, schedule: weekly",
            "name: behind, on: lag, of: source, lag_over: 1m",
        )
    )
    plan = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    await scheduled(desk, "schedule.created", slot_plan(plan), context={"target": {}, "retry_backoff": []})
    assert [(await desk.evaluate()).raised for _ in range(2)] == [3, 0]
    found = {one.rule: one.title for one in await desk.alerts()}
    assert found == {
        "missed": "nightly was not started",
        "late": "nightly was not started",
        "behind": "sources are not started",
    }
    claim = {"attempt": 1, "max_attempts": 1, "worker": "s", "lease_token": str(uuid4()), "lease_seconds": 30}
    coming = time_text(datetime.now(UTC) + timedelta(hours=1))
    await scheduled(desk, "slot.claimed", {"plan_time": time_text(plan), "next_plan": coming, **claim})
    done = await desk.evaluate()
    assert (done.raised, done.resolved) == (0, 2), "it is not missed any more; that it was late is told already"
    failed = {"plan_time": time_text(plan), "attempt": 1, "error_code": "error"}
    await scheduled(desk, "slot.failed", failed, error="no data")
    assert (await desk.evaluate()).raised == 0, "the slot was told about when it was missed"
    assert {one.rule: one.status for one in await desk.alerts()} == {
        "missed": "resolved", "late": "open", "behind": "resolved",
    }  # fmt: skip


def slot_plan(plan: datetime) -> dict[str, object]:
    return {
        "schedule_id": str(NIGHTLY), "name": "nightly", "kind": "source", "scope_kind": "global", "scope_id": "global",
        "expression": "0 * * * *", "timezone": "UTC", "mode": "latest_only", "delay_seconds": 0,
        "catch_up_seconds": 3600, "max_plans_per_tick": 10, "run_timeout_seconds": 60, "stale_timeout_seconds": 30,
        "heartbeat_seconds": 1, "max_attempts": 1, "allow_stale_reentry": True, "next_plan": time_text(plan),
    }  # fmt: skip


async def scheduled(desk: Desk, kind: str, meta: dict[str, object], **fields: object) -> None:
    """Record what happens to a schedule, as a scheduler would."""
    drafting, stream = Drafting(desk.runtime.ids.mint_many, PRODUCER), desk.scope.stream(f"schedule/{NIGHTLY}")
    root = organization_root_id(desk.scope.tenant_id, desk.scope.organization_id)
    draft = drafting.one(desk.scope, stream, root, kind, stream.stream_id, meta=meta, **fields)
    await desk.runtime.ledger.transact(Transition((Append(stream, [draft]),)))


async def test_a_state_that_comes_back_is_the_same_alert_once_more(desk: Desk) -> None:
    own, full = Rules("rules/x", "disk"), Found(subject="disk", title="disk is full", severity="warning")
    worse = Found(subject="disk", title="disk is full", severity="critical")
    seen = []
    for number, found in enumerate(([full], [full], [worse], [full], [], [], [full])):
        judged = await desk.parts.judging.judge(
            desk.scope, Judgement(rules=own, evaluation=str(number), found=found), {}
        )
        seen.append((judged.raised, judged.resolved))
    assert seen == [(1, 0), (0, 0), (1, 0), (0, 0), (0, 1), (0, 0), (1, 0)]
    (alert,) = await desk.alerts()
    assert (alert.occurrences, alert.severity, alert.status) == (3, "warning", "open")


async def test_rules_that_are_taken_away_leave_no_alert_open(desk: Desk, playbooks: Playbooks) -> None:
    await desk.apply(rules("name: failed, on: run_failed"))
    await playbooks.run(playbook(BROKEN))
    await desk.evaluate()
    await desk.parts.applied.remove(desk.scope, "ops")
    assert (await desk.evaluate()).resolved == 1
    assert [one.status for one in await desk.alerts()] == ["resolved"]


async def test_equal_rules_are_applied_once_and_channels_are_declared_once(desk: Desk, receiver: Receiver) -> None:
    text = hook_rules(receiver)
    first = await desk.parts.applied.apply(desk.scope, text)
    again = await desk.parts.applied.apply(desk.scope, "# the same, with a remark\n" + text)
    assert (first[1], again[1]) == (True, False)
    with pytest.raises(InputError, match="the channel hook is declared by ops already"):
        await desk.apply(text.replace("name: ops", "name: more"))
    # Other files may use it.
    await desk.apply("kind: Alerts\nname: more\nrules: [{name: x, on: run_failed, channels: [hook]}]")


async def test_organizations_do_not_see_each_others_rules_and_alerts(
    desk: Desk, other_desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-22, INV-79."""
    for one in (desk, other_desk):
        await one.apply(hook_rules(receiver))
    await playbooks.run(playbook(BROKEN))
    assert (await desk.evaluate()).raised == 1
    assert [len(await desk.alerts()), len(await other_desk.alerts())] == [1, 0]
    assert [len(await desk.deliveries()), len(await other_desk.deliveries())] == [1, 0]


async def test_a_rule_that_cannot_be_evaluated_does_not_keep_others_from_it(
    desk: Desk, playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noetl.services.alerts import conditions

    async def stumbles(*_: object) -> None:
        raise RuntimeError("stumbled")

    monkeypatch.setitem(conditions._KINDS, "lag", stumbles)  # type: ignore[attr-defined]
    await desk.apply(rules("name: lag, on: lag, lag_over: 1s", "name: failed, on: run_failed"))
    await playbooks.run(playbook(BROKEN))
    done = await desk.evaluate()
    assert (done.rules, done.failed, done.raised) == (2, 1, 1)
