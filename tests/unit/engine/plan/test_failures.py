"""What becomes of an error: it ends the execution, or an arc handles it, or the step was only worth a try."""

from __future__ import annotations

import pytest
from tests.unit.engine.plan.playing import EXECUTION_ID, Play, minting, plan_of

from noetl.engine.plan.decide import decide, undecidable
from noetl.engine.plan.state import Run, State, evolve
from noetl.engine.plan.trigger import Cancelled, CommandEnded, Doubt

FORK = "{step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}\n"


def test_an_error_nobody_handles_ends_the_execution_and_stops_the_others() -> None:
    """INV-39."""
    play = Play(FORK + "{step: a}\n{step: b, loop: {in: [1], iterator: i}}")
    play.ok("start")
    stage_id = play.state.active["b"].stage_id
    play.fail("a", "no such table")
    assert (play.end_kind, play.ending.error, play.ending.node_name) == ("playbook.failed", "no such table", "a")
    stopped = play.said("command.failed", "b")[0]
    assert (stopped.status, stopped.error) == ("cancelled", "stopped, because step a failed")
    assert play.said("stage.closed", "b")[0].stage_id == stage_id
    assert play.exit("b").status == "cancelled"


def test_a_step_that_was_stopped_keeps_what_it_came_to_before() -> None:
    play = Play(
        """
        {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
        {step: a, next: {arcs: [{step: a}]}}
        {step: b}
        """
    )
    play.ok("start").ok("a", data={"n": 1}).fail("b")
    assert play.state.results["a"].data == {"n": 1}


HANDLERS = [
    "{{ event.name == 'step.failed' }}",
    "{{ event.name == 'call.error' }}",
    "{{ output.status == 'error' }}",
    "{{ output.error.message == 'boom' }}",
    "{{ output.http.status == 404 }}",
]


@pytest.mark.parametrize("when", HANDLERS)
def test_an_arc_that_looks_at_the_outcome_handles_an_error(when: str) -> None:
    play = Play(
        f'{{step: a, set: {{ctx.x: 1}}, next: {{arcs: [{{step: b}}, {{step: c, when: "{when}", set: {{ctx.y: 1}}}}]}}}}\n{{step: b}}\n{{step: c}}'
    )
    play.fail("a", helpers={"http": {"status": 404}})
    assert play.active == {"c"}
    assert play.state.ctx == {"y": 1}
    assert (play.exit("a").status, play.exit("a").meta["swallowed"], play.state.failure) == ("failed", 1, None)
    play.ok("c")
    assert play.end_kind == "playbook.completed"
    assert play.ending.meta["swallowed"] == 1


@pytest.mark.parametrize(
    "when",
    [
        "{{ output.data.n > 1 }}",
        "{{ not (output.data.ok | default(false)) }}",
        "{{ workload == {} }}",
        "{{ event.name == 'step.done' }}",
    ],
)
def test_an_arc_that_looks_at_data_or_elsewhere_handles_no_error(when: str) -> None:
    play = Play(f'{{step: a, next: {{arcs: [{{step: b, when: "{when}"}}, {{step: b}}]}}}}\n{{step: b}}').fail("a")
    assert (play.end_kind, play.ending.error) == ("playbook.failed", "boom")
    assert play.exit("a").meta == {"run": 1, "refused": [0, 1], "fails": True}


def test_after_an_error_the_way_for_success_is_not_taken() -> None:
    flow = "{step: a, next: {arcs: [{step: b, when: \"{{ event.name == 'step.done' }}\"}, {step: c, when: \"{{ event.name == 'step.failed' }}\"}]}}\n{step: b}\n{step: c}"
    assert Play(flow).fail("a").active == {"c"}
    assert Play(flow).ok("a").active == {"b"}


def test_a_step_that_is_only_worth_a_try_goes_on_after_an_error() -> None:
    flow = "{step: a, set: {ctx.x: '{{ output.data.n }}'}, spec: {policy: {failure: best_effort}}, next: {arcs: [{step: b}]}}\n{step: b}"
    play = Play(flow).fail("a")
    assert play.active == {"b"}
    assert play.state.ctx == {}
    play.ok("b")
    assert (play.end_kind, play.ending.meta["swallowed"]) == ("playbook.completed", 1)


def test_a_step_that_is_only_worth_a_try_still_fails_if_nobody_can_say_where_it_goes() -> None:
    play = Play(
        "{step: a, spec: {policy: {failure: best_effort}}, next: {arcs: [{step: b, when: '{{ nobody }}'}]}}\n{step: b}"
    )
    assert play.ok("a").end_kind == "playbook.failed"


def test_swallowed_errors_of_tasks_are_counted() -> None:
    play = Play("{step: a, next: {arcs: [{step: b}]}}\n{step: b}").ok("a", swallowed=2).ok("b", swallowed=1)
    assert (play.state.swallowed, play.ending.meta["swallowed"]) == (3, 3)


def test_the_tries_of_tasks_are_kept() -> None:
    tries = [{"task": "get", "attempt": 1, "error": "timeout"}]
    play = Play("{step: a}").ok("a", tries=tries)
    assert play.said("command.completed")[0].meta["tries"] == tries


@pytest.mark.parametrize("went", ["well", "badly"])
def test_the_final_step_runs_once_after_everything_else(went: str) -> None:
    play = Play(
        FORK
        + "{step: a, next: {arcs: [{step: join}]}}\n{step: b, next: {arcs: [{step: join}]}}\n{step: join}\n{step: last}",
        "{final_step: last}",
    )
    play.ok("start", "a")
    if went == "well":
        play.ok("b", "join")
    else:
        play.fail("b")
    assert play.open == ["last/1/0"]
    assert play.said("step.entered", "last")[0].meta == {"run": 1, "cause": {"final": True}, "final": True}
    play.ok("last")
    assert play.end_kind == ("playbook.completed" if went == "well" else "playbook.failed")
    assert play.entered().count("last") == 1
    assert ("join" in play.entered()) is (went == "well")


def test_a_final_step_that_fails_fails_the_execution_but_hides_no_earlier_error() -> None:
    flow = "{step: a}\n{step: last}"
    assert Play(flow, "{final_step: last}").ok("a").fail("last", "late").ending.error == "late"
    assert Play(flow, "{final_step: last}").fail("a", "early").fail("last", "late").ending.error == "early"


def test_a_final_step_that_is_not_admitted_lets_the_execution_end() -> None:
    deny = "spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}"
    for end in ("ok", "fail"):
        play = Play(f"{{step: a}}\n{{step: last, {deny}}}", "{final_step: last}")
        getattr(play, end)("a")
        assert play.end_kind == ("playbook.completed" if end == "ok" else "playbook.failed")


def test_cancelling_ends_the_execution_with_its_reason() -> None:
    play = Play("{step: a}")
    play.take(Cancelled(reason="enough", by="ann"))
    assert (play.end_kind, play.ending.error, play.ending.meta["by"]) == ("execution.cancelled", "enough", "ann")
    assert play.state.status == "CANCELLED"
    assert play.take(CommandEnded(command_id="a/1/0", attempt=1, status="ok")) == ()


def test_doubt_about_work_that_is_open_changes_nothing() -> None:
    play = Play("{step: a}")
    assert play.doubt() == ()


def test_doubt_about_a_state_with_nothing_open_ends_it() -> None:
    """INV-33."""
    plan = plan_of("{step: a, next: {arcs: [{step: b}]}}\n{step: b}")
    begun = Play(plan).state
    stuck = [
        (State(execution_id=EXECUTION_ID, status="RUNNING"), "playbook.completed"),
        (State(execution_id=EXECUTION_ID, status="RUNNING", failure="boom", failed_step="a"), "playbook.failed"),
        (State(execution_id=EXECUTION_ID, status="RUNNING", active={"a": Run(number=1)}), "execution.failed"),
    ]
    for state, end in stuck:
        assert decide(plan, state, Doubt(), minting()).facts[-1].event_type == end
    assert decide(plan, begun, Doubt(), minting()).facts == ()


def test_an_execution_nobody_asked_for_has_nothing_to_end() -> None:
    plan = plan_of("{step: a}")
    for trigger in (Doubt(), Cancelled(reason="x", by="y"), CommandEnded(command_id="a/1/0", attempt=1, status="ok")):
        assert decide(plan, State(execution_id=EXECUTION_ID), trigger, minting()).facts == ()


def test_what_cannot_be_decided_ends_with_its_reason() -> None:
    state = Play("{step: a}").state
    fact = undecidable(state, ZeroDivisionError("division by zero"))
    after = evolve(state, fact)
    assert (after.status, after.error) == ("FAILED", "the execution cannot go on: ZeroDivisionError: division by zero")
    assert after.ended


@pytest.mark.parametrize(
    "flow",
    [
        "{step: a, loop: {in: [], iterator: i}, next: {arcs: [{step: a}]}}",
        "{step: a, loop: {in: '{{ nobody }}', iterator: i}, next: {arcs: [{step: a, when: \"{{ event.name == 'step.failed' }}\"}]}}",
    ],
)
def test_a_ring_of_steps_without_work_comes_to_an_end(flow: str) -> None:
    """INV-33."""
    play = Play(flow)
    assert play.end_kind == "execution.failed"
    assert "before step a: 1000 steps in a row" in (play.ending.error or "")


def test_a_decision_enters_so_many_steps_at_most_whatever_the_limits_are() -> None:
    flow = "{step: a, loop: {in: [], iterator: i}, next: {arcs: [{step: a}]}}"
    play = Play(flow, "{policy: {limits: {steps_without_work: 5000}}}")
    assert play.end_kind == "execution.failed"
    assert "1000 steps were entered at once without any work, the last one was a" in (play.ending.error or "")


ADMIT = "spec: {policy: {admit: {rules: [{when: '{{ workload.n > 1 }}', then: {allow: false}}, {when: '{{ workload.n == 1 }}', then: {allow: '{{ workload.ok }}'}}]}}}"


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ({"n": 2}, "admission rule 0 does not allow it"),
        ({"n": 1, "ok": False}, "admission rule 1 does not allow it"),
        ({"n": 1, "ok": True}, None),
        ({"n": 0}, None),
    ],
)
def test_a_step_is_entered_only_if_it_is_admitted(workload: dict[str, object], reason: str | None) -> None:
    play = Play(f"{{step: a, next: {{arcs: [{{step: b}}]}}}}\n{{step: b, {ADMIT}}}", workload=workload).ok("a")
    assert play.active == (set() if reason else {"b"})
    if reason:
        assert play.said("step.skipped", "b")[0].meta["reason"] == reason
        assert play.end_kind == "playbook.completed"


def test_a_rule_of_admission_that_fails_fails_its_step() -> None:
    play = Play("{step: a, spec: {policy: {admit: {rules: [{when: '{{ nobody }}', then: {allow: true}}]}}}}")
    assert play.end_kind == "playbook.failed"
    assert "demo/it, step a, field spec.policy.admit" in (play.ending.error or "")
    assert play.said("command.failed", "a")[0].result["error"]["kind"] == "transform"
