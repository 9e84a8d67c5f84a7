"""Slots are claimed once, missed ones are caught up with or skipped by rule, and every attempt is told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.integration.services.schedule.schedule_testbed import SCOPE, ScheduleTestbed

from noetl.errors import InputError, OutsideUnavailable, Unavailable
from noetl.model.event import time_text
from noetl.model.stream import Scope
from noetl.services.schedule.drafts import Said
from noetl.services.schedule.handlers.port import Outcome, SlotRun
from noetl.services.schedule.rows import ScheduleRow
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

SHORT = {"run_timeout_seconds": 0.2, "stale_timeout_seconds": 0.4, "heartbeat_seconds": 0.1}
AT_ONCE = {"retry_backoff": (0.0,)}


async def test_of_several_schedulers_one_claims_a_slot(testbed: ScheduleTestbed) -> None:
    """INV-62."""
    rows = [await testbed.behind(await testbed.schedule(f"s{number}"), timedelta(minutes=90)) for number in range(20)]
    schedulers = [testbed.scheduler(runner=f"s{number}") for number in range(8)]
    claimed = await asyncio.gather(*(scheduler.claim(100) for scheduler in schedulers))
    held = [one for some in claimed for one in some or ()]
    assert sorted(one.name for one in held) == sorted(row.named.name for row in rows)
    for row in rows:
        (slot,) = await testbed.slots(row)
        assert (slot.status, slot.attempt) == ("RUNNING", 1)


async def test_a_slot_is_run_and_its_schedule_moves_on(testbed: ScheduleTestbed) -> None:
    ran: list[SlotRun] = []

    async def does(slot: SlotRun) -> Outcome:
        ran.append(slot)
        return Outcome(run_id=77, rows_affected=3, result={"ok": True})

    row = await testbed.behind(await testbed.schedule(), timedelta(hours=1))
    async with testbed.running(does) as scheduler:
        assert await scheduler.tick() == 1
        await scheduler.running.drain()
        assert await scheduler.tick() == 0
    (slot,) = await testbed.slots(row)
    assert (slot.status, slot.run_id, slot.rows_affected, slot.result) == ("SUCCESS", 77, 3, {"ok": True})
    assert slot.plan_time == ran[0].plan_time == row.next_plan
    after = await scheduler.schedules.by_id(SCOPE, row.schedule_id)
    assert after.next_plan == row.next_plan + timedelta(hours=1)
    assert after.last_plan == row.next_plan


async def test_of_missed_slots_the_newest_runs_and_the_others_are_told(testbed: ScheduleTestbed) -> None:
    """INV-63."""
    row = await testbed.behind(await testbed.schedule(mode="latest_only"), timedelta(hours=5, minutes=30))
    async with testbed.running() as scheduler:
        assert await scheduler.tick() == 1
        await scheduler.running.drain()
    (slot,) = await testbed.slots(row)
    skipped = [meta for kind, meta, _ in await testbed.events(row) if kind == "slot.skipped"]
    assert slot.plan_time + timedelta(hours=1) > await testbed.now()
    passed = (slot.plan_time - row.next_plan) // timedelta(hours=1)
    assert [(one["reason"], one["count"]) for one in skipped] == [("latest_only", passed)]
    assert (await scheduler.schedules.by_id(SCOPE, row.schedule_id)).skipped == passed


async def test_all_missed_slots_within_the_window_run_oldest_first(testbed: ScheduleTestbed) -> None:
    """INV-63."""
    made = await testbed.schedule(mode="every_plan", catch_up_seconds=4 * 3600, max_plans_per_tick=2)
    row = await testbed.behind(made, timedelta(hours=9))
    order = []

    async def does(slot: SlotRun) -> Outcome:
        order.append(slot.plan_time)
        return Outcome()

    async with testbed.running(does, room={"platform": 1, "playbook": 1}) as scheduler:
        claimed = await scheduler.tick()
        await scheduler.running.drain()
    slots = await testbed.slots(row)
    assert claimed == len(slots) in (3, 4, 5)
    assert order == [slot.plan_time for slot in slots]
    (skipped,) = [meta for kind, meta, _ in await testbed.events(row) if kind == "slot.skipped"]
    assert skipped["reason"] == "catch_up_window"
    assert skipped["count"] + len(slots) == (slots[-1].plan_time - row.next_plan) // timedelta(hours=1) + 1


async def test_every_failed_slot_is_tried_again_not_only_the_newest(testbed: ScheduleTestbed) -> None:
    """INV-64."""
    made = await testbed.schedule(mode="every_plan", **AT_ONCE)
    row = await testbed.behind(made, timedelta(hours=3, minutes=30))
    tries: dict[object, int] = {}

    async def does(slot: SlotRun) -> Outcome:
        tries[slot.plan_time] = tries.get(slot.plan_time, 0) + 1
        if slot.attempt < 3:
            raise OutsideUnavailable(f"not yet, attempt {slot.attempt}")
        return Outcome()

    async with testbed.running(does) as scheduler:
        for _ in range(3):
            await scheduler.tick()
            await scheduler.running.drain()
    slots = await testbed.slots(row)
    assert len(slots) >= 3
    assert {(slot.status, slot.attempt) for slot in slots} == {("SUCCESS", 3)}
    assert set(tries.values()) == {3}
    errors = [error for kind, _, error in await testbed.events(row) if kind == "slot.attempt_failed"]
    assert sorted(errors, key=str) == sorted([f"not yet, attempt {number}" for number in (1, 2) for _ in slots]), (
        "each attempt's error is in the ledger"
    )


async def test_a_slot_without_backoff_is_not_tried_again(testbed: ScheduleTestbed) -> None:
    """INV-64."""

    async def does(slot: SlotRun) -> Outcome:
        raise ValueError("wrong \x00" + "x" * 9000)

    row = await testbed.behind(await testbed.schedule(retry_backoff=()), timedelta(minutes=90))
    async with testbed.running(does) as scheduler:
        for _ in range(2):
            await scheduler.tick()
            await scheduler.running.drain()
    (slot,) = await testbed.slots(row)
    assert (slot.status, slot.attempt, slot.next_retry_at, slot.error_code) == ("FAILED", 1, None, "handler_error")
    assert slot.error is not None
    assert len(slot.error) == 4000


async def test_a_slot_that_failed_too_long_ago_is_given_up_by_name(testbed: ScheduleTestbed) -> None:
    """INV-64."""

    async def does(slot: SlotRun) -> Outcome:
        raise OutsideUnavailable("no")

    made = await testbed.schedule(expression="rate(1 second)", catch_up_seconds=2.0, retry_backoff=(2.5,))
    row = await testbed.behind(made, timedelta(seconds=1))
    async with testbed.running(does) as scheduler:
        await scheduler.tick()
        await scheduler.running.drain()
        await scheduler.schedules.pause(SCOPE, "nightly", by="tests")
        (slot,) = await testbed.slots(row)
        assert slot.next_retry_at is not None
        await until(lambda: _passed(testbed, slot.next_retry_at), "the time of the retry")
        await scheduler.schedules.resume(SCOPE, "nightly", by="tests")
        await scheduler.tick()
        await scheduler.running.drain()
    first = (await testbed.slots(row))[0]
    assert (first.status, first.next_retry_at, first.error_code) == ("FAILED", None, "too_old")


async def _passed(testbed: ScheduleTestbed, moment: object) -> bool:
    return await testbed.now() > moment  # type: ignore[operator]


async def test_a_lost_runners_slot_is_run_by_another_with_a_new_token(testbed: ScheduleTestbed) -> None:
    """INV-64."""
    row = await testbed.behind(await testbed.schedule(**SHORT), timedelta(minutes=90))
    lost = testbed.scheduler(runner="lost")
    (held,) = await lost.claim(10) or []
    async with testbed.running(runner="s2") as scheduler:
        await until(scheduler.tick, "the end of the lease")
        await scheduler.running.drain()
    (slot,) = await testbed.slots(row)
    assert (slot.status, slot.attempt, slot.runner) == ("SUCCESS", 2, f"{PRODUCER}/s2")
    kinds = [kind for kind, _, _ in await testbed.events(row)]
    assert kinds[-4:] == ["slot.claimed", "slot.abandoned", "slot.claimed", "slot.succeeded"]
    async with testbed.running(runner="lost") as late:
        late.running.add(held)
        await late.running.drain()
    assert held.lost, "the old token changes nothing"
    assert await testbed.slots(row) == [slot]


async def test_a_slot_that_may_not_be_reentered_is_never_run_again(testbed: ScheduleTestbed) -> None:
    """INV-64."""
    row = await testbed.behind(await testbed.schedule(allow_stale_reentry=False, **SHORT), timedelta(minutes=90))
    await testbed.scheduler(runner="lost").claim(10)
    async with testbed.running(runner="s2") as scheduler:

        async def is_over() -> bool:
            await scheduler.tick()
            return (await testbed.slots(row))[0].status == "FAILED"

        await until(is_over, "the end of the lease")
        assert await scheduler.tick() == 0
    (slot,) = await testbed.slots(row)
    assert (slot.attempt, slot.next_retry_at, slot.error_code) == (1, None, "stale_timeout")


async def test_a_lost_lease_cancels_the_handler(testbed: ScheduleTestbed) -> None:
    """INV-64."""
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def does(slot: SlotRun) -> Outcome:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    spec = {"run_timeout_seconds": 20.0, "stale_timeout_seconds": 30.0, "heartbeat_seconds": 0.1}
    row = await testbed.behind(await testbed.schedule(**spec), timedelta(minutes=90))
    async with testbed.running(does) as scheduler:
        await scheduler.tick()
        await began.wait()
        async with testbed.database.transaction(SCOPE) as connection:
            await connection.execute("UPDATE noetl.cron_slot SET lease_until = now() - interval '1 second'")
        async with asyncio.timeout(10):
            await cancelled.wait()
            await scheduler.running.drain()
    assert (await testbed.slots(row))[0].status == "RUNNING", "whoever lost the lease ends nothing"


async def test_a_slow_handler_keeps_its_lease_and_one_that_takes_too_long_is_stopped(testbed: ScheduleTestbed) -> None:
    async def slow(slot: SlotRun) -> Outcome:
        first = await testbed.beat(slot)
        while await testbed.beat(slot) <= first:
            pass  # until a heartbeat has made the lease last longer; the other one never gets so far
        return Outcome() if slot.name == "slow" else await asyncio.Event().wait()  # type: ignore[return-value]

    spec = {"run_timeout_seconds": 0.9, "stale_timeout_seconds": 1.0, "heartbeat_seconds": 0.05}
    row = await testbed.behind(await testbed.schedule("slow", **spec), timedelta(minutes=90))
    late = await testbed.behind(
        await testbed.schedule("late", **{**spec, "run_timeout_seconds": 0.1}), timedelta(minutes=90)
    )
    async with testbed.running(slow) as scheduler:
        await scheduler.tick()
        await scheduler.running.drain()
    assert (await testbed.slots(row))[0].status == "SUCCESS"
    (slot,) = await testbed.slots(late)
    assert (slot.status, slot.error_code) == ("FAILED", "run_timeout")
    assert slot.next_retry_at is not None


async def test_a_result_that_is_too_large_is_a_failure(testbed: ScheduleTestbed) -> None:
    async def does(slot: SlotRun) -> Outcome:
        return Outcome(result={"rows": "x" * 20_000})

    row = await testbed.behind(await testbed.schedule(), timedelta(minutes=90))
    async with testbed.running(does) as scheduler:
        await scheduler.tick()
        await scheduler.running.drain()
    assert (await testbed.slots(row))[0].error_code == "input_invalid"


async def test_a_paused_schedule_starts_nothing_and_does_not_catch_up(testbed: ScheduleTestbed) -> None:
    row = await testbed.behind(await testbed.schedule(mode="every_plan"), timedelta(hours=3))
    async with testbed.running() as scheduler:
        await scheduler.schedules.pause(SCOPE, "nightly", by="tests")
        assert await scheduler.tick() == 0
        resumed = await scheduler.schedules.resume(SCOPE, "nightly", by="tests")
        assert resumed.next_plan > await testbed.now()
        assert await scheduler.tick() == 0
    assert await testbed.slots(row) == []


async def test_a_schedule_that_is_run_by_hand_keeps_its_plan(testbed: ScheduleTestbed) -> None:
    row = await testbed.schedule()
    async with testbed.running() as scheduler:
        held, ended = await scheduler.run_now(SCOPE, "nightly")
        await ended.wait()
        slot = await scheduler.slot(held)
    assert (slot.status, slot.manual) == ("SUCCESS", True)
    assert (await scheduler.schedules.by_id(SCOPE, row.schedule_id)).next_plan == row.next_plan


async def test_equal_names_of_two_organizations_never_meet(testbed: ScheduleTestbed) -> None:
    """INV-66."""
    other = Scope("globex", "care")
    mine = await testbed.behind(await testbed.schedule(), timedelta(minutes=90))
    theirs = await testbed.behind(await testbed.schedule(scope=other), timedelta(minutes=90))
    assert mine.schedule_id != theirs.schedule_id
    ran = []

    async def does(slot: SlotRun) -> Outcome:
        ran.append(slot.scope)
        return Outcome()

    async with testbed.running(does) as scheduler:
        assert await scheduler.tick() == 2
        await scheduler.running.drain()
        await scheduler.schedules.pause(other, "nightly", by="tests")
    assert set(ran) == {SCOPE, other}
    assert not (await scheduler.schedules.get(SCOPE, "nightly")).paused
    assert len(await testbed.slots(mine)) == len(await testbed.slots(theirs)) == 1


async def test_what_does_not_change_a_schedule_records_nothing(testbed: ScheduleTestbed) -> None:
    row = await testbed.schedule()
    again = await testbed.schedule()
    assert again.version == row.version == 1
    changed = await testbed.schedule(expression="rate(2 hours)")
    assert (changed.version, changed.spec.expression) == (2, "rate(2 hours)")
    assert changed.next_plan > await testbed.now()


async def test_a_spec_that_cannot_hold_is_refused_with_every_reason(testbed: ScheduleTestbed) -> None:
    with pytest.raises(InputError) as problem:
        await testbed.schedule(
            expression="61 * * * *", timezone="Moon", stale_timeout_seconds=10.0, run_timeout_seconds=10.0,
            heartbeat_seconds=10.0, max_attempts=0, max_plans_per_tick=0,
        )  # fmt: skip
    for part in ("minute", "longer than run_timeout", "shorter than stale_timeout", "max_attempts", "max_plans"):
        assert part in problem.value.message


async def test_a_scheduler_wakes_by_itself_when_something_is_due(testbed: ScheduleTestbed) -> None:
    row = await testbed.schedule(expression="rate(1 second)")
    scheduler = testbed.scheduler(poll_seconds=5.0)
    await scheduler.start()

    async def two() -> bool:
        return sum(slot.status == "SUCCESS" for slot in await testbed.slots(row)) >= 2

    await until(two, "two slots")
    await scheduler.stop()
    for slot in await testbed.slots(row):
        assert slot.status == "SUCCESS"
        assert slot.started_at - slot.plan_time < timedelta(seconds=2)


async def test_a_slot_that_stands_already_keeps_no_other_from_being_claimed(testbed: ScheduleTestbed) -> None:
    """INV-62."""
    rows = [await testbed.behind(await testbed.schedule(f"s{number}"), timedelta(minutes=90)) for number in range(5)]
    async with testbed.running() as scheduler:
        held = await scheduler.claim(10) or []
        assert len(held) == 5
        await testbed.behind(rows[2], timedelta(minutes=90))
        extra = await testbed.behind(await testbed.schedule("extra"), timedelta(minutes=90))
        again = await scheduler.claim(10) or []
        assert [one.name for one in again] == ["extra"]
    assert len(await testbed.slots(rows[2])) == len(await testbed.slots(extra)) == 1
    reasons = [meta["reason"] for kind, meta, _ in await testbed.events(rows[2]) if kind == "slot.skipped"]
    # Late in an hour one moment was missed, else two, of which the older is passed over each time.
    assert reasons.count("stands_already") == 1


async def test_a_schedule_that_cannot_be_planned_keeps_no_other_from_being_claimed(
    testbed: ScheduleTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    good = await testbed.behind(await testbed.schedule("good"), timedelta(minutes=90))
    bad = await testbed.behind(await testbed.schedule("bad"), timedelta(minutes=90))
    schedules = testbed.scheduler().schedules
    broken = Said("schedule.changed", {**_told(bad), "expression": "0 6 * * *", "timezone": "Europe/Atlantis"})
    await testbed.say(bad, broken)
    assert (await schedules.get(SCOPE, "bad")).spec.timezone == "Europe/Atlantis"
    held = await testbed.scheduler().claim(10) or []
    assert [one.name for one in held] == ["good"]
    assert "bad cannot be planned" in caplog.text
    assert len(await testbed.slots(good)) == 1


def _told(row: ScheduleRow) -> dict[str, object]:
    spec = msgspec.structs.asdict(row.spec)
    del spec["retry_backoff"]
    return {
        "schedule_id": row.schedule_id, "name": row.name, "kind": row.kind, "scope_kind": "global",
        "scope_id": "global", **spec, "next_plan": time_text(row.next_plan),
    }  # fmt: skip


async def test_who_changed_a_schedule_is_told(testbed: ScheduleTestbed) -> None:
    row = await testbed.schedule()
    schedules = testbed.scheduler().schedules
    await schedules.pause(SCOPE, "nightly", by="ann")
    await schedules.resume(SCOPE, "nightly", by="bob")
    await schedules.remove(SCOPE, "nightly", by="cid")
    assert [meta["by"] for _, meta, _ in await testbed.events(row)] == ["tests", "ann", "bob", "cid"]
    assert (await testbed.schedule()).removed_at is None, "it can be made again"


async def test_slots_of_a_removed_schedule_come_to_an_end(testbed: ScheduleTestbed) -> None:
    """INV-64."""

    async def does(slot: SlotRun) -> Outcome:
        raise OutsideUnavailable("no")

    row = await testbed.behind(await testbed.schedule(**AT_ONCE), timedelta(minutes=90))
    async with testbed.running(does) as scheduler:
        for one in await scheduler.claim(10) or []:
            scheduler.running.add(one)
        await scheduler.running.drain()
        await scheduler.schedules.remove(SCOPE, "nightly", by="tests")
        await scheduler.tick()
    (slot,) = await testbed.slots(row)
    assert (slot.status, slot.next_retry_at, slot.error_code) == ("FAILED", None, "schedule_removed")


async def test_a_slot_waits_for_the_platform_in_its_attempt(testbed: ScheduleTestbed) -> None:
    """INV-182: a database that is away for a moment uses no attempt up."""
    row = await testbed.behind(await testbed.schedule(**AT_ONCE), timedelta(minutes=90))
    tries = 0

    async def does(slot: SlotRun) -> Outcome:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("the database does not answer")
        return Outcome()

    async with testbed.running(does) as scheduler:
        await scheduler.tick()
        await scheduler.running.drain()
    assert {(slot.status, slot.attempt) for slot in await testbed.slots(row)} == {("SUCCESS", 1)}
    assert not [kind for kind, _, _ in await testbed.events(row) if kind == "slot.attempt_failed"]
