"""What is done about missed moments, retries and lost runners, and that no history strands or doubles a slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.services.schedule.planning import SlotFacts, first_plan, following, plan, retry_delay, verdict
from noetl.services.schedule.spec import Spec

NOW = datetime(2026, 5, 4, 12, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def spec(**fields: Any) -> Spec:
    return Spec(**{"expression": "rate(1 hour)", **fields}).checked()


def test_what_is_early_is_left_alone() -> None:
    assert plan(spec(), NOW + HOUR, NOW) is None
    assert plan(spec(delay_seconds=60.0), NOW.replace(second=0), NOW) is None


def test_missed_moments_are_skipped_by_window_and_mode() -> None:
    """INV-63."""
    first = NOW.replace(minute=0, second=0) - 10 * HOUR
    latest = plan(spec(catch_up_seconds=5 * 3600), first, NOW)
    assert latest is not None
    assert latest.plans == (NOW.replace(second=0),)
    assert [(one.reason, one.count) for one in latest.skips] == [("catch_up_window", 6), ("latest_only", 4)]
    assert latest.next_plan == NOW.replace(second=0) + HOUR
    every = plan(spec(catch_up_seconds=5 * 3600, mode="every_plan", max_plans_per_tick=2), first, NOW)
    assert every is not None
    assert every.plans == (first + 6 * HOUR, first + 7 * HOUR)
    assert (every.skips[0].first, every.skips[0].last, every.skips[0].count) == (first, first + 5 * HOUR, 6)
    assert every.next_plan == first + 8 * HOUR


def test_a_moment_that_is_too_old_is_skipped_though_it_is_the_newest() -> None:
    """INV-63."""
    yearly = spec(expression="0 0 1 1 *", catch_up_seconds=3600.0)
    found = plan(yearly, datetime(2026, 1, 1, tzinfo=UTC), NOW)
    assert found is not None
    assert (found.plans, found.next_plan.year) == ((), 2027)
    assert [(one.reason, one.count) for one in found.skips] == [("catch_up_window", 1)]


def test_a_clock_that_is_set_back_or_forward_doubles_nothing() -> None:
    """INV-62."""
    ahead = NOW + timedelta(days=3)
    jumped = plan(spec(mode="every_plan", catch_up_seconds=864_000.0, max_plans_per_tick=1000), NOW + HOUR, ahead)
    assert jumped is not None
    assert jumped.plans[-1] <= ahead < jumped.next_plan
    assert plan(spec(), jumped.next_plan, NOW) is None, "nothing is due until the clock has caught up"
    assert first_plan(spec(), NOW, decided=jumped.plans[-1]) == jumped.next_plan, "also after a change or a pause"


def test_the_rules_of_retries() -> None:
    """INV-64."""
    own = spec(retry_backoff=(1.0, 5.0), max_attempts=4)
    assert [retry_delay(own, attempt, 4) for attempt in (1, 2, 3, 4)] == [1.0, 5.0, 5.0, None]
    assert retry_delay(spec(retry_backoff=()), 1, 3) is None, "no waits: no retry"
    failed = SlotFacts(plan_time=NOW, status="FAILED", attempt=1, max_attempts=4)
    assert verdict(own, failed, NOW + HOUR) is None, "a slot without a time for its retry has none"
    assert verdict(own, msg(failed, next_retry_at=NOW), NOW) == "retry"
    assert verdict(own, msg(failed, next_retry_at=NOW + HOUR), NOW) is None
    assert verdict(own, msg(failed, next_retry_at=NOW), NOW + timedelta(days=2)) == "too_old"


def test_the_rules_of_lost_runners() -> None:
    """INV-64."""
    lost = SlotFacts(plan_time=NOW, status="RUNNING", attempt=1, max_attempts=3, lease_until=NOW)
    assert verdict(spec(), msg(lost, lease_until=NOW + HOUR), NOW) is None
    assert verdict(spec(), lost, NOW) == "stale_retry"
    assert verdict(spec(allow_stale_reentry=False), lost, NOW) == "stale_failed"
    assert verdict(spec(), msg(lost, attempt=3), NOW) == "stale_failed"
    assert verdict(spec(retry_backoff=()), lost, NOW) == "stale_failed"


def msg(facts: SlotFacts, **changes: Any) -> SlotFacts:
    fields = {name: getattr(facts, name) for name in facts.__struct_fields__}
    return SlotFacts(**{**fields, **changes})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stale_timeout_seconds": 120.0}, "longer than run_timeout"),
        ({"heartbeat_seconds": 300.0}, "shorter than stale_timeout"),
        ({"heartbeat_seconds": 0.0}, "heartbeat must be"),
        ({"run_timeout_seconds": 0.0}, "run_timeout must be"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"mode": "every_plan", "max_plans_per_tick": 0}, "max_plans_per_tick"),
        ({"retry_backoff": (-1.0,)}, "retry_backoff"),
        ({"catch_up_seconds": 0.0}, "catch_up_window"),
        ({"delay_seconds": float("nan")}, "delay"),
    ],
)
def test_a_spec_that_cannot_hold_is_refused(fields: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in Spec(**{"expression": "rate(1 hour)", **fields}).problems())


@dataclass
class World:
    """One schedule as rows would hold it, changed by nothing but the planner's decisions."""

    own: Spec
    now: datetime
    next_plan: datetime
    slots: dict[datetime, dict[str, Any]] = field(default_factory=dict)
    skipped: set[datetime] = field(default_factory=set)
    runs: set[tuple[datetime, int]] = field(default_factory=set)
    given_up: set[datetime] = field(default_factory=set)

    def tick(self) -> None:
        """Do all that is due, as a scheduler would."""
        for moment, slot in self.slots.items():
            facts = SlotFacts(plan_time=moment, **{name: slot[name] for name in _FACTS})
            match verdict(self.own, facts, self.now):
                case "retry":
                    self._lease(moment, slot["attempt"] + 1)
                case "stale_retry":
                    slot |= {"status": "FAILED", "lease_until": None, "next_retry_at": self.now}
                case "stale_failed" | "too_old":
                    self.given_up.add(moment)
                    slot |= {"status": "FAILED", "lease_until": None, "next_retry_at": None}
        while (found := plan(self.own, self.next_plan, self.now)) is not None:
            for skip in found.skips:
                moment = skip.first
                while moment <= skip.last:
                    assert moment not in self.slots
                    self.skipped.add(moment)
                    moment = following(self.own, moment)
            for moment in found.plans:
                assert moment not in self.slots, "a moment was claimed twice"
                assert moment not in self.skipped
                self.slots[moment] = {"max_attempts": self.own.max_attempts}
                self._lease(moment, 1)
            assert found.next_plan > self.next_plan
            self.next_plan = found.next_plan

    def _lease(self, moment: datetime, attempt: int) -> None:
        assert (moment, attempt) not in self.runs, "an attempt was made twice"
        assert attempt <= self.own.max_attempts
        assert moment not in self.given_up, "what was given up was run again"
        self.runs.add((moment, attempt))
        until = self.now + timedelta(seconds=self.own.stale_timeout_seconds)
        self.slots[moment] |= {
            "status": "RUNNING", "attempt": attempt, "lease_until": until, "next_retry_at": None
        }  # fmt: skip

    def end(self, well: bool) -> None:
        """Let the oldest slot that runs end."""
        running = [moment for moment, slot in sorted(self.slots.items()) if slot["status"] == "RUNNING"]
        if not running:
            return
        slot = self.slots[running[0]]
        delay = None if well else retry_delay(self.own, slot["attempt"], self.own.max_attempts)
        slot |= {
            "status": "SUCCESS" if well else "FAILED",
            "lease_until": None,
            "next_retry_at": None if delay is None else self.now + timedelta(seconds=delay),
        }


_FACTS = ("status", "attempt", "max_attempts", "next_retry_at", "lease_until")
specs = st.builds(
    Spec,
    expression=st.sampled_from(["rate(1 minute)", "rate(7 minutes)", "*/5 * * * *", "3 * * * *"]),
    mode=st.sampled_from(["latest_only", "every_plan"]),
    delay_seconds=st.sampled_from([0.0, 90.0]),
    catch_up_seconds=st.sampled_from([60.0, 900.0, 7200.0]),
    max_plans_per_tick=st.integers(1, 4),
    max_attempts=st.integers(1, 4),
    retry_backoff=st.sampled_from([(), (0.0,), (60.0, 600.0)]),
    allow_stale_reentry=st.booleans(),
)
# Time passes, is set back, is set forward; slots end well, fail or are lost; or the scheduler is away.
acts = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 4000)),
        st.tuples(st.just("back"), st.integers(1, 4000)),
        st.tuples(st.just("tick"), st.just(0)),
        st.tuples(st.just("well"), st.just(0)),
        st.tuples(st.just("badly"), st.just(0)),
    ),
    max_size=40,
)


@given(own=specs, history=acts)
def test_no_history_strands_or_doubles_a_slot(own: Spec, history: list[tuple[str, int]]) -> None:
    """INV-62, INV-64."""
    world = World(own, NOW, first_plan(own, NOW))
    began = world.next_plan
    for act, amount in history:
        match act:
            case "pass":
                world.now += timedelta(seconds=amount)
            case "back":
                world.now -= timedelta(seconds=amount)
            case "tick":
                world.tick()
            case _:
                world.end(act == "well")
    # From here on all is well: the scheduler is there, and every run succeeds.
    for _ in range(60):
        world.now += timedelta(seconds=max(own.stale_timeout_seconds, 600.0))
        world.tick()
        while any(slot["status"] == "RUNNING" for slot in world.slots.values()):
            world.end(well=True)
    for moment, slot in world.slots.items():
        assert slot["status"] in ("SUCCESS", "FAILED"), moment
        assert slot["next_retry_at"] is None, f"{moment} waits for ever"
    moment = began
    while moment < world.next_plan:
        assert (moment in world.slots) != (moment in world.skipped), f"{moment} was neither run nor told as skipped"
        moment = following(own, moment)
