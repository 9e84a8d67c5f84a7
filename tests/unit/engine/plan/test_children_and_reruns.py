"""Steps that wait for another execution, executions that begin in the middle, and data that is kept elsewhere."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.engine.plan.playing import EXECUTION_ID, Play, plan_of, start_of

from noetl.engine.plan.decide import needed
from noetl.engine.plan.state import Result, State
from noetl.engine.plan.trigger import CommandEnded, Tally
from noetl.model.payload_ref import FRAMES, PayloadRef, payload_uri

DIGEST = "ab" * 32
REF = PayloadRef(
    uri=payload_uri("default", "default", DIGEST),
    sha256=DIGEST,
    media_type="application/json",
    bytes=2,
    stored_sha256=DIGEST,
)
MANIFEST = msgspec.structs.replace(REF, media_type=FRAMES)


def test_a_sub_playbook_suspends_its_step_on_a_child() -> None:
    play = Play(
        "{step: a, tool: {kind: playbook, path: demo/child, input: {n: '{{ workload.n }}'}, return_step: last}}",
        workload={"n": 7},
    )
    issued = play.said("command.issued")[0]
    assert issued.meta["child_execution_id"] == "1000"
    assert issued.context["child"] == {
        "path": "demo/child", "version": None, "payload": {"n": 7}, "return_step": "last", "waits": True,
    }  # fmt: skip
    play.ok("a", attempt=0, data={"from": "child"})
    assert play.ending.result["data"] == {"from": "child"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("path: '{{ nobody }}'", "tool playbook"),
        ("path: '{{ 7 }}'", "needs a path"),
        ("path: x, input: {n: '{{ 9007199254740993 }}'}", "field payload"),
    ],
)
def test_a_sub_playbook_that_cannot_be_named_fails_its_step(fields: str, said: str) -> None:
    play = Play(f"{{step: a, tool: {{kind: playbook, {fields}}}}}")
    assert play.end_kind == "playbook.failed"
    assert "demo/it, step a" in (play.ending.error or "")
    assert said in (play.ending.error or "")


def test_a_sub_playbook_whose_task_uses_the_outcome_is_not_suspended() -> None:
    play = Play("{step: a, tool: {kind: playbook, path: demo/child, set: {ctx.x: '{{ output.data }}'}}}")
    assert "child_execution_id" not in play.said("command.issued")[0].meta


def test_a_rerun_begins_at_its_step_with_what_came_before() -> None:
    kept = msgspec.to_builtins({"a": Result(data={"n": 5})})
    play = Play(
        "{step: a, next: {arcs: [{step: b}]}}\n{step: b, next: {arcs: [{step: c, when: '{{ a.n + ctx.m == 6 }}'}]}}\n{step: c}",
        rerun_of=1, from_step="b", ctx={"m": 1}, results=kept,
    )  # fmt: skip
    assert play.active == {"b"}
    assert play.said("execution.requested")[0].meta["rerun_of"] == "1"
    play.ok("b", "c")
    assert play.entered() == ["b", "c"]
    assert play.end_kind == "playbook.completed"


def test_a_rerun_from_a_join_waits_for_nobody() -> None:
    fork = "{step: s, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}\n"
    play = Play(
        fork + "{step: a, next: {arcs: [{step: j}]}}\n{step: b, next: {arcs: [{step: j}]}}\n{step: j}",
        rerun_of=1,
        from_step="j",
    )
    assert play.ok("j").end_kind == "playbook.completed"


FLOW = """
{step: a, next: {arcs: [{step: b, when: '{{ output.data.n == 1 }}'}]}}
{step: b, loop: {in: '{{ a.rows }}', iterator: i}, next: {arcs: [{step: c, when: '{{ big.n == 1 }}'}]}}
{step: c}
{step: big}
"""


def test_only_data_that_templates_look_at_is_asked_for() -> None:
    plan = plan_of(FLOW)
    state = msgspec.structs.replace(Play(plan).state, results={"big": Result(ref=REF), "c": Result(ref=REF)})
    ended = CommandEnded(command_id="a/1/0", attempt=1, status="ok", ref=REF)
    assert needed(plan, state, ended) == {"a": REF, "big": REF}
    assert needed(plan, state, CommandEnded(command_id="a/9/0", attempt=1, status="ok")) == {}
    again = start_of(plan, rerun_of=1, from_step="b", results=msgspec.to_builtins({"a": Result(ref=REF)}))
    assert needed(plan, State(execution_id=EXECUTION_ID), again) == {"a": REF}


def test_data_of_an_earlier_run_is_not_taken_for_what_a_step_came_to_now() -> None:
    plan = plan_of("{step: a, next: {arcs: [{step: a, when: '{{ output.data.more }}'}]}}")
    play = Play(plan, loaded={"a": {"more": True}}).ok("a", ref=REF)
    assert play.open == ["a/2/0"]
    assert (
        needed(plan, play.state, CommandEnded(command_id="a/2/0", attempt=1, status="ok", data={"more": False})) == {}
    )
    play.ok("a", data={"more": False})
    assert play.end_kind == "playbook.completed"


def test_the_counts_of_a_loop_are_seen_beside_the_reference_to_its_results() -> None:
    plan = plan_of(
        "{step: a, loop: {in: [1], iterator: i}, next: {arcs: [{step: b}]}}\n{step: b, next: {arcs: [{step: c, when: '{{ a.total == 1 }}'}]}}\n{step: c}"
    )
    play = Play(plan, loaded={"a": {"frames": []}}).rows("a", rows_done=1, manifest=REF)
    assert play.state.results["a"].ref == REF
    assert needed(plan, play.state, CommandEnded(command_id="b/1/0", attempt=1, status="ok")) == {}
    assert play.ok("b").active == {"c"}


@pytest.mark.parametrize(
    ("asked", "is_needed"),
    [
        ("a.results | length == 2", True),
        ("a.data.results[0] == 5", True),
        ("a.data | length == 5", True),
        ("(a | length) > 5", True),
        ("a.values() | list | length > 5", True),
        ("a.total == 2", False),
        ("a.data.failed == 0 and a.data.frames == 0", False),
        ("a._ref is not none and a.status == 'ok'", False),
        ("output.status == 'ok' and a.completed == 2", False),
    ],
)
def test_what_a_loops_rows_came_to_is_asked_for_by_who_looks_at_it(asked: str, is_needed: bool) -> None:
    arc = f'next: {{arcs: [{{step: c, when: "{{{{ {asked} }}}}"}}]}}'
    plan = plan_of(
        f"{{step: a, loop: {{in: [1, 2], iterator: i}}, next: {{arcs: [{{step: b}}]}}}}\n{{step: b, {arc}}}\n{{step: c}}"
    )
    play = Play(plan, loaded={"a": [5, 6]} if is_needed else {}).rows("a", rows_done=2, manifest=MANIFEST)
    found = needed(plan, play.state, CommandEnded(command_id="b/1/0", attempt=1, status="ok"))
    assert found == ({"a": MANIFEST} if is_needed else {})
    assert play.ok("b").active == {"c"}


@pytest.mark.parametrize("asked", ["a.results", "output.data.results", "a.data.results"])
def test_a_loop_sees_what_its_own_rows_came_to(asked: str) -> None:
    plan = plan_of(f"{{step: a, loop: {{in: [1, 2], iterator: i}}, set: {{ctx.sum: '{{{{ {asked} | sum }}}}'}}}}")
    play = Play(plan, loaded={"a": [5, 6]})
    tally = Tally(frames=1, rows_done=2, manifest=MANIFEST)
    ended = CommandEnded(command_id="a/1/0", attempt=1, status="ok", tally=tally)
    assert needed(plan, play.state, ended) == {"a": MANIFEST}
    play.take(ended)
    assert play.state.ctx == {"sum": 11}
    assert play.state.results["a"].data == {"total": 2, "completed": 2, "failed": 0, "frames": 1}


def test_a_loop_over_a_loop_takes_what_its_rows_came_to() -> None:
    plan = plan_of(
        "{step: a, loop: {in: [1, 2], iterator: i}, next: {arcs: [{step: b}]}}\n{step: b, loop: {in: '{{ a }}', iterator: i}}"
    )
    play = Play(plan, loaded={"a": [5, 6]}).rows("a", rows_done=2, manifest=MANIFEST)
    assert play.said("step.entered", "b")[0].rows == [5, 6]
    few = Play(plan).rows("a", rows_done=2, results=[7, 8])
    assert few.said("step.entered", "b")[0].rows == [7, 8]
    own = Play("{step: a, next: {arcs: [{step: b}]}}\n{step: b, loop: {in: '{{ a }}', iterator: i}}").ok(
        "a", data={"results": [1], "total": 1}
    )
    assert "a list is needed, and this is dict" in (own.ending.error or "")


def test_the_counts_of_a_childs_loop_stand_beside_the_reference_to_its_results() -> None:
    plan = plan_of(
        "{step: a, tool: {kind: playbook, path: demo/child}, set: {ctx.sum: '{{ output.data.results | sum }}'}, next: {arcs: [{step: b}]}}\n"
        "{step: b, loop: {in: '{{ a }}', iterator: i}}"
    )
    counts = {"total": 2, "completed": 2, "failed": 0, "frames": 1}
    ended = CommandEnded(command_id="a/1/0", attempt=0, status="ok", data=counts, ref=MANIFEST)
    play = Play(plan, loaded={"a": [5, 6]})
    assert needed(plan, play.state, ended) == {"a": MANIFEST}
    play.take(ended)
    assert (play.state.results["a"].data, play.state.results["a"].ref) == (counts, MANIFEST)
    assert play.state.ctx == {"sum": 11}
    assert play.said("step.entered", "b")[0].rows == [5, 6]


def test_results_that_stand_elsewhere_end_the_execution_with_their_reference() -> None:
    play = Play("{step: a}").ok("a", ref=REF, data={"preview": 1})
    assert play.ending.payload_ref == REF
    assert play.ending.result["data"] is None
