"""Steps without work: passed in the decision that enters them, and recorded like any other."""

from __future__ import annotations

import pytest
from tests.unit.engine.plan.playing import Play, plan_of

from noetl.engine.plan.decide import IDLE_STEPS


def _idle(step: str, after: str = "") -> str:
    return f"{{step: {step}, tool: {{kind: noop}}{after}}}"


def _chain(steps: int) -> str:
    return "\n".join(
        _idle(f"s{n}", f", next: {{arcs: [{{step: s{n + 1}}}]}}" if n + 1 < steps else "") for n in range(steps)
    )


def test_steps_without_work_are_passed_in_one_decision() -> None:
    play = Play(_chain(3))
    assert play.end_kind == "playbook.completed"
    assert not play.said("command.issued")
    assert [(fact.event_type, fact.node_name) for fact in play.facts if fact.node_name] == [
        (kind, f"s{n}") for n in range(3) for kind in ("step.entered", "step.exited")
    ]


def test_what_a_step_without_work_sets_and_where_it_goes_is_recorded() -> None:
    arcs = "[{step: b, when: '{{ ctx.n == 2 }}', set: {ctx.way: '{{ a.status }}'}}, {step: c}]"
    play = Play(f"{_idle('a', f', set: {{ctx.n: 2}}, next: {{arcs: {arcs}}}')}\n{{step: b}}\n{{step: c}}")
    assert play.active == {"b"}
    assert play.exit("a").context == {"set": {"n": 2, "way": "ok"}}
    assert play.state.results["a"].status == "ok"


def test_a_template_that_fails_in_a_step_without_work_fails_the_execution() -> None:
    play = Play(_idle("a", ", set: {ctx.n: '{{ ctx.absent }}'}"))
    assert play.end_kind == "playbook.failed"
    assert "ctx.absent" in (play.exit("a").error or "")


def test_a_long_chain_goes_to_a_worker_now_and_then() -> None:
    play = Play(_chain(2 * IDLE_STEPS + 3))
    assert play.active == {f"s{IDLE_STEPS}"}
    play.ok(f"s{IDLE_STEPS}")
    assert play.active == {f"s{2 * IDLE_STEPS + 1}"}
    play.ok(f"s{2 * IDLE_STEPS + 1}")
    assert play.end_kind == "playbook.completed"


@pytest.mark.parametrize(
    "step",
    [
        "{step: a, tool: {kind: noop, set: {ctx.x: 1}}}",
        "{step: a, tool: {kind: noop, input: {x: 1}}}",
        "{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}}",
        "{step: a, spec: {timeout: 5}, tool: {kind: noop}}",
        "{step: a, loop: {in: [1], iterator: x}, tool: {kind: noop}}",
        "{step: a, tool: [{name: x, kind: noop}, {name: y, kind: noop}]}",
        "{step: a, tool: {kind: shell, cmds: 'true'}}",
    ],
)
def test_whatever_a_worker_has_a_part_in_goes_to_a_worker(step: str) -> None:
    assert not plan_of(step).step("a").is_idle
