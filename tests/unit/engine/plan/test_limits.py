"""How long an execution may go on: INV-161, counted over all its decisions and told with the limit to raise."""

from __future__ import annotations

import pytest
from tests.unit.engine.plan.playing import Play, folded

from noetl.engine.plan.trigger import CommandEnded, OutOfTime
from noetl.language.playbook.model import Limits

RING = """
{step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
{step: b, tool: {kind: noop}, next: {arcs: [{step: a}]}}
"""


def _limits(**limits: object) -> str:
    told = ", ".join(f"{name}: {most}" for name, most in limits.items())
    return f"{{policy: {{limits: {{{told}}}}}}}"


def _to_the_end(play: Play) -> Play:
    for _ in range(100):
        if play.state.ended:
            return play
        (step,) = play.active
        play.ok(step)
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("most", [1, 33, 1_000])
def test_a_ring_without_work_ends_after_so_many_steps_over_all_decisions(most: int) -> None:
    play = _to_the_end(Play(RING, "{}" if most == 1_000 else _limits(steps_without_work=most)))
    end = play.facts[-1]
    assert end.event_type == "execution.failed"
    assert sum(play.state.runs.values()) == most
    assert end.meta["limit"] == "steps_without_work"
    assert end.meta["most"] == most
    assert end.node_name == play.state.failed_step == "ab"[most % 2]
    assert f"before step {end.node_name}: {most} steps in a row" in (end.error or "")
    assert (end.error or "").endswith(f"or raise executor.spec.policy.limits.steps_without_work above {most}")


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: noop, set: {ctx.n: 1}}",
        "{kind: noop, input: {x: 1}}",
        "[{name: x, kind: noop}, {name: y, kind: noop}]",
    ],
)
def test_steps_of_noops_that_a_worker_looks_at_are_without_work_as_well(tool: str) -> None:
    ring = f"{{step: a, tool: {tool}, next: {{arcs: [{{step: a}}]}}}}"
    play = _to_the_end(Play(ring, _limits(steps_without_work=7)))
    assert play.facts[-1].meta["limit"] == "steps_without_work"
    assert play.state.runs == {"a": 7}


@pytest.mark.parametrize(
    "step",
    [
        "{step: a, loop: {in: [], iterator: x}, tool: {kind: shell, cmds: 'true'}, next: {arcs: [{step: a}]}}",
        "{step: a, loop: {in: '{{ ctx.no }}', iterator: x}, tool: {kind: shell, cmds: 'true'},"
        " next: {arcs: [{step: a, when: \"{{ event.name == 'step.failed' or output.status == 'error' }}\"}]}}",
    ],
    ids=["no rows", "templates that fail"],
)
def test_steps_that_end_in_the_decision_that_enters_them_are_without_work(step: str) -> None:
    play = _to_the_end(Play(step, _limits(steps_without_work=7)))
    assert play.facts[-1].meta["limit"] == "steps_without_work"
    assert play.state.runs == {"a": 7}


def test_a_ring_with_work_is_bounded_by_its_steps_alone() -> None:
    ring = """
    {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
    {step: b, tool: {kind: shell, cmds: 'true'}, next: {arcs: [{step: a}]}}
    """
    play = _to_the_end(Play(ring, _limits(steps_without_work=2, steps=41)))
    assert play.facts[-1].meta["limit"] == "steps"
    assert play.state.runs == {"a": 21, "b": 20}
    assert "41 steps were entered" in (play.facts[-1].error or "")


def test_events_are_bounded() -> None:
    play = _to_the_end(Play(RING, _limits(events=100)))
    assert play.facts[-1].meta["limit"] == "events"
    assert 100 < play.state.version <= 103


def test_an_execution_that_ends_at_its_limit_ends_well() -> None:
    chain = "{step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}\n{step: b, tool: {kind: noop}}"
    assert Play(chain, _limits(steps_without_work=2, steps=2)).end_kind == "playbook.completed"
    assert Play(chain, _limits(steps=1)).facts[-1].error == (
        "the limit steps is reached before step b: 1 steps were entered; let a condition end the ring,"
        " or raise executor.spec.policy.limits.steps above 1"
    )


def test_time_is_asked_for_with_the_execution_and_its_end_says_what_was_under_way() -> None:
    play = Play("{step: a, tool: {kind: shell, cmds: 'true'}}", _limits(seconds="90m"))
    assert play.facts[0].meta["limit_seconds"] == 5_400
    play.take(OutOfTime())
    assert play.end_kind == "execution.failed"
    assert play.facts[-1].error == (
        "the limit seconds is reached in a: the execution had not ended 5400 seconds after its request;"
        " let it do less, or raise executor.spec.policy.limits.seconds above 5400"
    )
    assert play.take(CommandEnded(command_id="a/1/0", attempt=1, status="ok")) == ()


def test_an_execution_without_a_limit_of_time_goes_on() -> None:
    play = Play("{step: a, tool: {kind: shell, cmds: 'true'}}")
    assert "limit_seconds" not in play.facts[0].meta
    assert play.take(OutOfTime()) == ()
    assert not play.state.ended


def test_what_counts_is_told_by_the_events_alone() -> None:
    """INV-161: whoever folds the events counts the same, whichever process decided."""
    play = Play(RING)
    for _ in range(5):
        (step,) = play.active
        play.ok(step)
    assert folded(play.facts) == play.state
    assert play.state.without_work == sum(play.state.runs.values()) > 150


def test_limits_that_are_not_written_have_defaults() -> None:
    limits = Play("{step: a}", _limits(steps=5)).plan.playbook.limits
    assert limits == Limits(steps_without_work=1_000, steps=5, events=10_000_000, seconds=None)
