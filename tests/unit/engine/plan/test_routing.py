"""Where it goes after a step: order, conditions, what is set on the way, and what happens when nothing holds."""

from __future__ import annotations

import pytest
from tests.unit.engine.plan.playing import Play, plan_of


def test_an_execution_begins_at_its_first_step_and_completes_after_the_last() -> None:
    play = Play("{step: a, next: {arcs: [{step: b}]}}\n{step: b}")
    assert [fact.event_type for fact in play.last] == [
        "execution.requested", "playbook.initialized", "step.entered", "command.issued",
    ]  # fmt: skip
    assert play.said("step.entered", "a")[0].meta == {"run": 1, "cause": {"entry": True}}
    play.ok("a", "b")
    assert play.entered() == ["a", "b"]
    assert play.said("step.entered", "b")[0].meta["cause"] == {"from": "a", "arc": 0}
    assert play.end_kind == "playbook.completed"


def test_the_entry_step_need_not_be_the_first() -> None:
    play = Play("{step: a}\n{step: b, next: {arcs: [{step: a}]}}", "{entry_step: b}")
    assert play.active == {"b"}


ARCS = "[{step: b, when: '{{ workload.n > 1 }}'}, {step: c, when: '{{ workload.n > 0 }}'}, {step: d}]"


@pytest.mark.parametrize(("n", "taken", "refused"), [(2, "b", None), (1, "c", [0]), (0, "d", [0, 1])])
def test_an_exclusive_router_takes_the_first_arc_that_holds(n: int, taken: str, refused: list[int] | None) -> None:
    play = Play(f"{{step: a, next: {{arcs: {ARCS}}}}}\n{{step: b}}\n{{step: c}}\n{{step: d}}", workload={"n": n}).ok(
        "a"
    )
    assert play.active == {taken}
    assert play.exit("a").meta.get("refused") == refused


def test_an_inclusive_router_takes_every_arc_that_holds() -> None:
    flow = f"{{step: a, next: {{spec: {{mode: inclusive}}, arcs: {ARCS}}}}}\n{{step: b}}\n{{step: c}}\n{{step: d}}"
    play = Play(flow, workload={"n": 1}).ok("a")
    assert play.active == {"c", "d"}
    assert play.exit("a").meta == {"run": 1, "taken": [[1, "c"], [2, "d"]], "refused": [0]}


def test_a_step_sets_before_its_arcs_are_looked_at_and_the_arc_sets_before_its_target_is_entered() -> None:
    play = Play(
        """
        {step: a, set: {ctx.n: '{{ output.data.n + 1 }}'}, next: {arcs: [{step: b, when: '{{ ctx.n == 3 }}', set: {ctx.from: '{{ ctx.n * 2 }}', bare: yes}}]}}
        {step: b, loop: {in: '{{ range(ctx.from) | list }}', iterator: i}}
        """
    )
    play.ok("a", data={"n": 2})
    assert play.exit("a").context == {"set": {"n": 3, "from": 6, "bare": "yes"}}
    assert play.state.ctx == {"n": 3, "from": 6, "bare": "yes"}
    assert play.said("step.entered", "b")[0].meta["loop"]["total"] == 6


def test_the_set_of_an_arc_that_is_not_taken_changes_nothing() -> None:
    play = Play("{step: a, next: {arcs: [{step: b, when: false, set: {ctx.x: 1}}, {step: b}]}}\n{step: b}").ok("a")
    assert play.state.ctx == {}


def test_what_a_worker_set_is_seen_by_the_arcs() -> None:
    play = Play("{step: a, next: {arcs: [{step: b, when: '{{ ctx.seen.deep == 1 }}'}]}}\n{step: b}")
    play.ok("a", ctx_writes={"seen.deep": 1})
    assert play.active == {"b"}
    assert play.said("command.completed")[0].context == {"set": {"seen.deep": 1}}


def test_a_later_write_above_undoes_an_earlier_one_below() -> None:
    play = Play(
        "{step: a, set: {ctx.x.y: 1, ctx.z: 1}, next: {arcs: [{step: b, set: {ctx.x: {w: 2}}}]}}\n{step: b}"
    ).ok("a")
    assert play.state.ctx == {"x": {"w": 2}, "z": 1}


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ 4 / 2 }}", 2),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ event.name }}", "call.done"),
        ("{{ {'b': 1, 'a': 2} }}", {"a": 2, "b": 1}),
    ],
)
def test_a_value_is_decided_on_as_the_ledger_gives_it_back(template: str, value: object) -> None:
    """INV-40."""
    play = Play(f'{{step: a, set: {{ctx.x: "{template}"}}, next: {{arcs: [{{step: b}}]}}}}\n{{step: b}}').ok("a")
    assert play.state.ctx["x"] == value
    assert type(play.state.ctx["x"]) is type(value)
    assert str(play.state.ctx["x"]) == str(value)


@pytest.mark.parametrize("template", ["{{ 9007199254740993 }}", "{{ 'nan' | float }}"])
def test_a_value_that_cannot_be_recorded_fails_its_step(template: str) -> None:
    play = Play(f'{{step: a, set: {{ctx.odd: "{template}"}}}}').ok("a")
    assert play.end_kind == "playbook.failed"
    assert "step a, set of ctx.odd" in (play.ending.error or "")


def test_a_loop_back_runs_a_step_again_under_a_new_number() -> None:
    play = Play(
        """
        {step: a, set: {ctx.n: '{{ (ctx.n | default(0)) + 1 }}'}, next: {arcs: [{step: b, when: '{{ ctx.n < 3 }}'}, {step: c}]}}
        {step: b, next: {arcs: [{step: a}]}}
        {step: c}
        """
    )
    for _ in range(2):
        play.ok("a", "b")
    assert play.open == ["a/3/0"]
    play.ok("a", "c")
    assert play.entered() == ["a", "b", "a", "b", "a", "c"]
    assert play.end_kind == "playbook.completed"


def test_a_step_may_lead_to_itself() -> None:
    play = Play("{step: a, set: {ctx.n: '{{ output.data }}'}, next: {arcs: [{step: a, when: '{{ ctx.n > 0 }}'}]}}")
    for left in (2, 1, 0):
        play.ok("a", data=left)
    assert play.state.runs == {"a": 3}
    assert play.end_kind == "playbook.completed"


BRANCHES = """
{{step: a, next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: c}}]}}}}
{{step: b, next: {{spec: {{on_no_match: {word}}}, arcs: [{{step: d, when: false}}]}}}}
{{step: c, next: {{arcs: [{{step: d}}]}}}}
{{step: d}}
"""


@pytest.mark.parametrize("word", ["complete", "quiet"])
@pytest.mark.parametrize("first", ["b", "c"])
def test_a_branch_that_ends_leaves_the_others_to_their_end_whichever_is_first(word: str, first: str) -> None:
    others = {"b", "c"} - {first}
    play = Play(BRANCHES.format(word=word)).ok("a", first)
    assert play.active == others
    play.ok(*others, "d")
    assert play.end_kind == "playbook.completed"
    assert {fact.status for fact in play.said("step.exited")} == {"completed"}


@pytest.mark.parametrize(("word", "end"), [("complete", "playbook.failed"), ("quiet", "playbook.completed")])
def test_where_every_step_must_lead_on_a_step_that_does_not_is_an_error_unless_it_is_quiet(word: str, end: str) -> None:
    flow = f"{{step: a, next: {{spec: {{on_no_match: {word}}}, arcs: [{{step: end, when: false}}]}}}}\n{{step: end}}"
    play = Play(flow, "{no_next_is_error: true}").ok("a")
    assert play.end_kind == end
    if end == "playbook.failed":
        assert play.ending.error == "no arc of step a holds, and executor.spec.no_next_is_error is set"


def test_a_last_step_is_no_error_where_every_step_must_lead_on() -> None:
    play = Play("{step: a, next: {arcs: [{step: end}]}}\n{step: end}", "{no_next_is_error: true}").ok("a", "end")
    assert play.end_kind == "playbook.completed"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ("set: {ctx.before: 1}, next: {arcs: [{step: b, when: '{{ nobody.knows }}'}]}", "arc 0 to b, field when"),
        (
            "set: {ctx.before: 1}, next: {arcs: [{step: b, set: {ctx.x: '{{ nobody }}'}}]}",
            "arc 0 to b, field set.ctx.x",
        ),
        ("set: {ctx.before: 1, ctx.x: '{{ output.data.none }}'}", "field set.ctx.x"),
    ],
)
def test_a_template_that_fails_on_the_way_out_fails_the_step_and_sets_nothing(fields: str, field: str) -> None:
    play = Play(f"{{step: a, {fields}}}\n{{step: b}}")
    play.ok("a", data={})
    assert play.end_kind == "playbook.failed"
    assert play.ending.node_name == "a"
    assert f"demo/it, step a, {field}" in (play.ending.error or "")
    assert play.state.ctx == {}


def test_a_result_is_seen_by_later_steps_and_a_step_that_says_nothing_does_not_hide_it() -> None:
    play = Play("{step: a, next: {arcs: [{step: b, when: '{{ a.n == 1 and a.data.n == 1 }}'}]}}\n{step: b}")
    play.ok("a", data={"n": 1}).ok("b")
    assert play.ending.result == {"status": "ok", "step": "a", "data": {"n": 1}}


@pytest.mark.parametrize("name", ["call.done", "step.done", "step.exit", "command.completed"])
def test_one_happening_has_several_names(name: str) -> None:
    play = Play(
        f"{{step: a, next: {{arcs: [{{step: b, when: \"{{{{ event.name == '{name}' }}}}\"}}]}}}}\n{{step: b}}"
    ).ok("a")
    assert play.active == {"b"}


def test_results_are_gathered_over_runs_and_what_cannot_be_gathered_is_an_error() -> None:
    rule = {"strategy": "concat"}
    flow = "{step: a, next: {arcs: [{step: a, when: '{{ (a.accumulated | length) < 3 }}'}, {step: b, when: \"{{ output.status == 'error' }}\"}]}}\n{step: b}"
    play = Play(flow).ok("a", data=[1], accumulate=rule).ok("a", data=[2, 3], accumulate=rule)
    assert play.state.results["a"].accumulated == [1, 2, 3]
    play = Play(flow).ok("a", data=[1], accumulate=rule).ok("a", data={"no": "list"}, accumulate=rule)
    assert play.active == {"b"}
    assert "demo/it, step a, field output.accumulate: " in (play.exit("a").error or "")
    assert play.state.results["a"].accumulated == [1]


def test_what_a_worker_says_and_nobody_can_record_is_an_error_of_its_step() -> None:
    play = Play("{step: a}").ok("a", data={"big": 2**60})
    assert play.end_kind == "playbook.failed"
    assert "step a, result: the value cannot be recorded" in (play.ending.error or "")


def test_a_plan_knows_its_steps() -> None:
    assert plan_of("{step: a, tool: [{name: x, kind: noop}]}").step("a").tool_kind == "sequence"


def test_an_arc_to_a_step_that_does_not_exist_fails_its_step() -> None:
    play = Play("{step: a, next: {arcs: [{step: nowhere}]}}").ok("a")
    assert play.end_kind == "playbook.failed"
    assert play.ending.error == "demo/it, step a, arc 0 to nowhere: the playbook has no such step"
