"""Where branches meet: a step that several lead to runs once, after every branch that may still come has ended."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.unit.engine.plan.playing import Play, plan_of

from noetl.engine.plan.graph import Graph

FORK = "{step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}\n"


@pytest.mark.parametrize("order", list(permutations("ab")))
def test_a_join_runs_once_after_all_branches_ended(order: tuple[str, ...]) -> None:
    """INV-38."""
    play = Play(FORK + "{step: a, next: {arcs: [{step: join}]}}\n{step: b, next: {arcs: [{step: join}]}}\n{step: join}")
    play.ok("start", order[0])
    assert play.active == {order[1]}
    play.ok(order[1])
    assert play.active == {"join"}
    opened = play.said("stage.opened", "join")[0]
    assert opened.meta["kind"] == "reduce"
    assert opened.context["sources"] == ["a", "b"]
    assert play.said("step.entered", "join")[0].stage_id == opened.stage_id
    play.ok("join")
    assert play.said("stage.closed", "join")[0].status == "completed"
    assert (play.state.runs["join"], play.end_kind) == (1, "playbook.completed")


@pytest.mark.parametrize("order", [("a", "b", "c"), ("b", "a", "c"), ("a", "c", "b")])
def test_a_longer_branch_is_waited_for(order: tuple[str, ...]) -> None:
    rest = "{step: a, next: {arcs: [{step: c}]}}\n{step: b, next: {arcs: [{step: join}]}}\n{step: c, next: {arcs: [{step: join}]}}\n{step: join}"
    play = Play(FORK + rest).ok("start", *order[:2])
    assert "join" not in play.active
    play.ok(order[2])
    assert play.active == {"join"}
    assert play.entered().count("join") == 1


def test_a_branch_that_was_skipped_or_went_elsewhere_is_not_waited_for() -> None:
    deny = "spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}"
    rest = f"{{step: a, next: {{arcs: [{{step: join}}]}}, {deny}}}\n{{step: b, next: {{arcs: [{{step: join}}]}}}}\n{{step: join}}"
    play = Play(FORK + rest).ok("start")
    assert play.active == {"b"}
    play.ok("b")
    assert play.active == {"join"}
    rest = "{step: a, next: {arcs: [{step: aside, when: true}, {step: join}]}}\n{step: b, next: {arcs: [{step: join}]}}\n{step: join}\n{step: aside}"
    play = Play(FORK + rest).ok("start", "b")
    assert play.active == {"a"}
    play.ok("a")
    assert play.active == {"aside", "join"}


def test_a_join_that_one_branch_alone_reached_is_a_plain_step() -> None:
    play = Play("{step: a, next: {arcs: [{step: c}, {step: b}]}}\n{step: b, next: {arcs: [{step: c}]}}\n{step: c}").ok(
        "a"
    )
    assert play.active == {"c"}
    assert play.said("stage.opened") == []


NESTED = """
{step: head, next: {spec: {mode: inclusive}, arcs: [{step: x}, {step: y}, {step: z}]}}
{step: x, next: {arcs: [{step: inner}]}}
{step: y, next: {arcs: [{step: inner}]}}
{step: z, next: {arcs: [{step: outer}]}}
{step: inner, next: {arcs: [{step: outer}]}}
{step: outer, set: {ctx.n: '{{ (ctx.n | default(0)) + 1 }}'}, next: {arcs: [{step: head, when: '{{ ctx.n < 2 }}'}]}}
"""


@pytest.mark.parametrize("order", list(permutations("xyz")))
def test_joins_inside_a_ring_wait_for_what_lies_before_them(order: tuple[str, ...]) -> None:
    play = Play(NESTED)
    for _ in range(2):
        play.ok("head")
        for step in order:
            assert not {"outer"} & play.active
            play.ok(step)
            if "inner" in play.active:
                play.ok("inner")
        play.ok("outer")
    assert play.state.runs == {"head": 2, "x": 2, "y": 2, "z": 2, "inner": 2, "outer": 2}
    assert play.end_kind == "playbook.completed"


def test_a_long_branch_inside_a_ring_is_waited_for() -> None:
    play = Play(
        """
        {step: head, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
        {step: a, next: {arcs: [{step: c}]}}
        {step: c, next: {arcs: [{step: join}]}}
        {step: b, next: {arcs: [{step: join}]}}
        {step: join, next: {arcs: [{step: head, when: '{{ workload.again }}'}]}}
        """,
        workload={"again": False},
    )
    play.ok("head", "b", "a")
    assert play.active == {"c"}
    play.ok("c")
    assert play.active == {"join"}


def test_two_arrivals_in_a_ring_do_not_wait_for_each_other() -> None:
    play = Play(
        """
        {step: s, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: c}]}}
        {step: a, next: {arcs: [{step: b}]}}
        {step: b, next: {arcs: [{step: c}]}}
        {step: c, next: {arcs: [{step: a, when: false}]}}
        """
    )
    play.ok("s")
    assert play.active == {"a"}
    play.ok("a", "b", "c")
    assert play.entered() == ["s", "a", "b", "c"]
    assert play.end_kind == "playbook.completed"


def test_several_arcs_to_one_step_enter_it_once() -> None:
    play = Play("{step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: b}]}}\n{step: b}").ok("a", "b")
    assert play.entered() == ["a", "b"]


def test_the_final_step_is_never_entered_before_the_others_ended() -> None:
    play = Play(
        "{step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: last}]}}\n{step: b}\n{step: last}",
        "{final_step: last}",
    )
    play.ok("a")
    assert play.active == {"b"}
    play.ok("b")
    assert play.active == {"last"}
    play.ok("last")
    assert play.entered() == ["a", "b", "last"]
    assert play.end_kind == "playbook.completed"


def test_order_in_a_graph_has_no_rings() -> None:
    steps = plan_of(NESTED).playbook.steps
    graph = Graph(steps, "head")
    pairs = [(one, other) for one in steps for other in steps if graph.is_before(one, other)]
    assert ("inner", "outer") in pairs
    assert not {(other, one) for one, other in pairs} & set(pairs)
    assert graph.reaches("outer", "inner")
