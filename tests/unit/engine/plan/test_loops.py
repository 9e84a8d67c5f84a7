"""Loops: what is fixed when one is entered, and what its rows' fates mean for the step."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.plan.playing import Play, plan_of

from noetl.engine.plan.planned import FrameDefaults, LoopDefaults, Plan
from noetl.engine.plan.trigger import CommandEnded, Tally

LOOP_DONE = "next: {arcs: [{step: b, when: \"{{ event.name == 'loop.done' }}\"}]}"
CURSOR = (
    "loop: {cursor: {kind: postgres, auth: pg, claim: SELECT 1}, iterator: row, spec: {mode: cursor, max_in_flight: 2}}"
)


def each(mode: str = "parallel", rows: object = "[1, 2, 3]", more: str = "", after: str = LOOP_DONE) -> str:
    return f"{{step: a, loop: {{in: {rows}, iterator: i, spec: {{mode: {mode}, max_in_flight: 2{more}}}}}, {after}}}\n{{step: b}}"


def test_an_empty_collection_is_done_at_once() -> None:
    play = Play(each(rows="[]"))
    assert play.active == {"b"}
    assert play.said("stage.opened") == []
    assert play.said("loop.started")[0].meta == {"collection_size": 0, "mode": "parallel"}
    assert play.said("loop.done")[0].result == {"status": "ok", "context": {"total": 0, "completed": 0, "failed": 0}}
    assert play.state.results["a"].data == {"total": 0, "completed": 0, "failed": 0, "frames": 0}


def test_a_parallel_loop_has_as_many_slots_as_may_be_in_flight() -> None:
    play = Play(each(rows="'{{ range(250) | list }}'", more=", frame: {max_rows: 100}"))
    assert play.open == ["a/1/0", "a/1/1"]
    entered = play.said("step.entered")[0]
    assert entered.rows == list(range(250))
    assert (entered.meta["loop"]["mode"], entered.meta["loop"]["total"], entered.meta["loop"]["slots"]) == (
        "parallel",
        250,
        2,
    )
    assert {fact.stage_id for fact in play.said("command.issued")} == {play.said("stage.opened")[0].stage_id}
    play.end("a")
    assert play.said("loop.done") == []
    play.end("a", tally=Tally(frames=3, rows_done=250, results=[1, 2]))
    assert play.active == {"b"}
    assert play.state.results["a"].data["results"] == [1, 2]
    assert play.said("stage.closed")[0].meta == {"frames": 3, "rows": 250, "failed": 0}


def test_no_more_slots_are_opened_than_there_are_frames() -> None:
    assert Play(each(rows="[1]", more=", frame: {max_rows: 1}")).open == ["a/1/0"]
    assert Play(each(mode="sequential")).open == ["a/1/0"]


def test_what_a_loop_does_not_say_itself_the_installation_does() -> None:
    own = FrameDefaults(most_rows=7, max_seconds=1.5, max_bytes=9, max_in_flight=3)
    defaults = LoopDefaults(loop=own, fanout=FrameDefaults(max_in_flight=2))
    rows = "in: '{{ range(100) | list }}', iterator: i"

    def entered(loop: str) -> tuple[Any, ...]:
        play = Play(Plan(plan_of(f"{{step: a, loop: {loop}}}").playbook, defaults))
        loop_of = play.said("step.entered")[0].meta["loop"]
        return (loop_of["slots"], *(loop_of["frame"][name] for name in ("max_rows", "max_seconds", "max_bytes")))

    assert entered(f"{{{rows}, spec: {{mode: parallel}}}}") == (3, 7, 1.5, 9)
    assert entered(f"{{{rows}}}") == (1, 7, 1.5, 9)
    assert entered(f"{{{rows}, spec: {{mode: fanout}}}}") == (2, 1, 30.0, 67_108_864)
    own_words = "{mode: parallel, max_in_flight: 2, frame: {max_rows: 20, max_seconds: 4, max_bytes: 5}}"
    assert entered(f"{{{rows}, spec: {own_words}}}") == (2, 20, 4, 5)


def test_a_cursor_loop_learns_how_many_rows_there_were() -> None:
    play = Play(f"{{step: a, {CURSOR}, {LOOP_DONE}}}\n{{step: b}}")
    assert play.said("loop.started")[0].meta == {"collection_size": None, "mode": "cursor"}
    play.rows("a", frames=2, rows_done=7)
    assert play.active == {"b"}
    assert play.said("loop.done")[0].result["context"] == {"total": 7, "completed": 7, "failed": 0}


def test_rows_that_failed_fail_the_step_unless_an_arc_looks_at_the_end() -> None:
    play = Play(each(after="next: {arcs: [{step: b}]}")).rows("a", rows_done=2, rows_failed=1)
    assert (play.end_kind, play.ending.error) == ("playbook.failed", "1 of 3 rows failed")
    assert "taken" not in play.exit("a").meta
    play = Play(each()).rows("a", rows_done=2, rows_failed=1, errors=4)
    assert play.active == {"b"}
    assert (play.exit("a").status, play.exit("a").meta["swallowed"]) == ("failed", 5)


def test_the_error_of_a_loop_names_the_first_row_that_failed_and_why() -> None:
    why = {"rows_done": 2, "rows_failed": 1, "problem": "row 1: ValueError: two"}
    play = Play(each(after="next: {arcs: [{step: b}]}")).rows("a", **why)
    assert play.ending.error == "1 of 3 rows failed; first: row 1: ValueError: two"
    seen = "next: {arcs: [{step: b, when: '{{ output.status == \"error\" }}', set: {ctx.why: '{{ output.error.message }}'}}]}"
    play = Play(each(mode="fanout", after=seen)).rows("a", **why)
    assert play.state.ctx == {"why": "1 of 3 rows failed; first: row 1: ValueError: two"}
    play = Play(each(rows="[1, 2]", more=", frame: {max_rows: 1}", after="next: {arcs: [{step: b}]}")).fail("a", "lost")
    play.end("a", tally=Tally(rows_failed=1, frames=1, problem="row 0: no"))
    assert play.ending.error == "1 of 2 rows failed and 1 of 2 rows was never tried: lost; first: row 0: no"


@pytest.mark.parametrize(("rows", "last"), [([1, 2, 3], 2), ([7], 0), ([], 0)])
def test_the_arcs_of_a_loop_know_that_it_is_done_and_how_long_it_was(rows: list[int], last: int) -> None:
    after = "set: {ctx.loop: '{{ loop }}'}, next: {arcs: [{step: b, when: \"{{ event.name == 'loop.done' and loop.done }}\"}]}"
    play = Play(each(rows=rows, after=after))
    if rows:
        play.rows("a", rows_done=len(rows))
    assert play.active == {"b"}
    length = len(rows)
    assert play.state.ctx["loop"] == {
        "index": last, "first": length < 2, "last": True, "length": length, "done": True
    }  # fmt: skip


def test_a_cursor_whose_claim_fails_is_not_done() -> None:
    after = "set: {ctx.done: '{{ loop.done }}'}, next: {arcs: [{step: b, when: '{{ output.status == \"error\" }}'}]}"
    play = Play(f"{{step: a, {CURSOR}, {after}}}\n{{step: b}}").fail("a", "no such table").fail("a", "no such table")
    assert (play.active, play.state.ctx) == ({"b"}, {"done": False})


def test_rows_nobody_was_given_are_not_tried_and_those_whose_frame_never_ended_have_failed() -> None:
    """INV-180."""
    play = Play(each()).rows("a", rows_done=2)
    counts = {"total": 3, "completed": 2, "failed": 0, "not_tried": 1}
    assert play.said("loop.done")[0].result == {"status": "error", "context": counts}
    assert play.said("stage.closed")[0].meta["not_tried"] == 1
    play = Play(each()).rows("a", rows_done=1, rows_handed_out=2)
    counts = {"total": 3, "completed": 1, "failed": 1, "not_tried": 1}
    assert play.said("loop.done")[0].result == {"status": "error", "context": counts}
    play = Play(each()).rows("a", rows_done=2, rows_handed_out=3)
    counts = {"total": 3, "completed": 2, "failed": 1}
    assert play.said("loop.done")[0].result == {"status": "error", "context": counts}


@pytest.mark.parametrize(("done", "target"), [(3, "well"), (2, "badly")])
def test_a_loop_with_failed_rows_has_not_done_its_step(done: int, target: str) -> None:
    after = "next: {arcs: [{step: well, when: \"{{ event.name == 'step.done' }}\"}, {step: badly, when: \"{{ event.name == 'step.failed' }}\"}]}"
    play = Play(each(after=after) + "\n{step: well}\n{step: badly}").rows("a", rows_done=done, rows_failed=3 - done)
    assert play.active == {target}


def test_a_cursor_whose_claim_fails_is_not_taken_for_drained() -> None:
    play = Play(f"{{step: a, {CURSOR}, {LOOP_DONE}}}\n{{step: b}}")
    play.fail("a", "no such table").fail("a", "no such table")
    assert (play.end_kind, play.ending.error) == ("playbook.failed", "no such table")
    handled = f"{{step: a, {CURSOR}, next: {{arcs: [{{step: b, when: \"{{{{ output.status == 'error' }}}}\"}}]}}}}\n{{step: b}}"
    play = Play(handled).fail("a").fail("a")
    assert (play.active, play.state.swallowed) == ({"b"}, 1)


def test_a_slot_that_was_lost_does_no_harm_if_the_others_did_all_rows() -> None:
    play = Play(each(rows="[1, 2]", more=", frame: {max_rows: 1}")).fail("a")
    play.end("a", tally=Tally(rows_done=2, frames=2))
    assert (play.active, play.exit("a").status, play.state.swallowed) == ({"b"}, "completed", 1)
    play = Play(each(rows="[1, 2]", more=", frame: {max_rows: 1}", after="next: {arcs: [{step: b}]}")).fail("a", "lost")
    play.end("a", tally=Tally(rows_done=1, frames=1))
    assert play.ending.error == "1 of 2 rows was never tried: lost"


def test_what_rows_set_is_seen_by_the_arcs_and_the_steps_own_set_comes_after() -> None:
    after = "set: {ctx.n.last: '{{ ctx.n.seen + 1 }}'}, next: {arcs: [{step: b, when: '{{ ctx.n.seen == 1 and a.total == 3 }}'}]}"
    play = Play(each(after=after)).rows("a", rows_done=3, ctx={"n.seen": 1})
    assert play.active == {"b"}
    assert play.state.ctx == {"n": {"seen": 1, "last": 2}}


FANOUT: list[tuple[str, dict[str, Any], str, str, bool]] = [
    ("", {"rows_done": 3}, "complete", "completed", False),
    ("", {"rows_done": 2, "rows_failed": 1}, "partial", "partial", False),
    ("", {"rows_failed": 3}, "failed", "failed", True),
    (", fanout: {fail_fast: true}", {"rows_done": 2, "rows_failed": 1}, "failed", "failed", True),
    (", fanout: {allow_partial: false}", {"rows_done": 2, "rows_failed": 1}, "failed", "failed", True),
    (", fanout: {allow_partial: false}", {"rows_done": 3}, "complete", "completed", False),
]


@pytest.mark.parametrize(("more", "tally", "fanin", "status", "fails"), FANOUT)
def test_a_fan_out_ends_complete_partial_or_failed(
    more: str, tally: dict[str, Any], fanin: str, status: str, fails: bool
) -> None:
    play = Play(
        each(mode="fanout", more=more, after="next: {arcs: [{step: b, set: {ctx.fanin: '{{ fanin.status }}'}}]}")
    )
    assert play.said("loop.fanout.started")[0].meta == {"total_shards": 3}
    assert play.said("stage.opened")[0].meta["kind"] == "fanout"
    play.rows("a", **tally)
    done = play.said("loop.fanin.completed")[0]
    assert (done.status, done.result["status"]) == (status, fanin)
    assert play.state.ended is fails
    if fails:
        assert play.end_kind == "playbook.failed"
    else:
        assert play.state.ctx == {"fanin": fanin}
        assert play.exit("a").meta.get("swallowed", 0) == tally.get("rows_failed", 0)


@pytest.mark.parametrize(
    ("loop", "field"),
    [
        ("{in: '{{ nobody }}', iterator: i}", "field loop.in"),
        ("{in: '{{ workload }}', iterator: i}", "field loop.in"),
        ("{in: '{{ workload.text }}', iterator: i}", "field loop.in"),
        ("{in: '{{ [9007199254740993] }}', iterator: i}", "field loop.in"),
        (
            "{in: [1], iterator: i, spec: {mode: parallel, max_in_flight: '{{ nobody }}'}}",
            "field loop.spec.max_in_flight",
        ),
        ("{in: [1], iterator: i, spec: {mode: parallel, max_in_flight: '{{ 0 }}'}}", "field loop.spec.max_in_flight"),
        ("{in: [1], iterator: i, spec: {mode: parallel, max_in_flight: '{{ 1.5 }}'}}", "field loop.spec.max_in_flight"),
        ("{in: [1], iterator: i, spec: {frame: {max_rows: '{{ \"x\" }}'}}}", "field loop.spec.frame.max_rows"),
        (
            "{in: [1], iterator: i, spec: {frame: {lease_seconds: '{{ nobody }}'}}}",
            "field loop.spec.frame.lease_seconds",
        ),
    ],
)
def test_a_loop_whose_templates_fail_fails_closed(loop: str, field: str) -> None:
    play = Play(f"{{step: a, loop: {loop}, {LOOP_DONE}}}\n{{step: b}}", workload={"text": "[1, 2"})
    assert play.end_kind == "playbook.failed"
    assert f"demo/it, step a, {field}" in (play.ending.error or "")
    assert [fact.event_type for fact in play.facts[2:]] == [
        "step.entered", "command.issued", "command.failed", "step.exited", "playbook.failed",
    ]  # fmt: skip


def test_a_loop_whose_templates_fail_can_be_handled() -> None:
    after = "next: {arcs: [{step: b, when: \"{{ event.name == 'step.failed' }}\"}]}"
    play = Play(each(rows="'{{ nobody }}'", after=after))
    assert play.active == {"b"}
    assert play.state.swallowed == 1


@pytest.mark.parametrize(
    "rows", ["'{{ first }}'", "'{{ first.data }}'", "'{{ workload.text }}'", "'{{ range(1, 3) }}'", "'{{ (1, 2) }}'"]
)
def test_rows_come_from_a_list_a_step_or_text_of_json(rows: str) -> None:
    play = Play("{step: first, next: {arcs: [{step: a}]}}\n" + each(rows=rows), workload={"text": "[1, 2]"}).ok(
        "first", data=[1, 2]
    )
    assert play.said("step.entered", "a")[0].rows == [1, 2]


def test_a_loop_can_run_again() -> None:
    after = "set: {ctx.n: '{{ (ctx.n | default(0)) + 1 }}'}, next: {arcs: [{step: a, when: '{{ ctx.n < 2 }}'}]}"
    play = Play(each(rows="[1]", after=after)).rows("a", rows_done=1)
    assert play.open == ["a/2/0"]
    assert len({fact.loop_id for fact in play.said("loop.started")}) == 2
    assert play.rows("a", rows_done=1).end_kind == "playbook.completed"


def test_the_end_of_a_slot_that_ended_before_changes_nothing() -> None:
    """INV-32."""
    play = Play(each(more=", frame: {max_rows: 1}"))
    play.end("a")
    assert play.take(CommandEnded(command_id="a/1/0", attempt=1, status="error")) == ()
    assert play.state.active["a"].failed is None


def test_a_shard_is_tried_as_often_as_the_fan_out_says() -> None:
    play = Play(each(mode="fanout", more=", fanout: {max_shard_retries: 4}"))
    assert play.said("stage.opened")[0].context["frame_policy"]["max_attempts"] == 5
