"""How deep executions may start each other is decided from what the ledger says, and what was decided stands in it."""

from __future__ import annotations

import pytest
from tests.unit.engine.plan.playing import EXECUTION_ID, Play, folded, minting, plan_of, start_of

from noetl.engine.plan.decide import decide
from noetl.engine.plan.limits import MAX_CHILD_DEPTH, depth_below
from noetl.engine.plan.state import State
from noetl.errors import ChildTooDeep

CALL = "{step: a, tool: {kind: playbook, path: demo/child}"


def test_the_request_tells_the_depth_and_the_first_execution_has_none_above() -> None:
    first = Play(CALL + "}")
    assert first.said("execution.requested")[0].meta["depth"] == 0
    below = Play(CALL + "}", depth=7, parent_execution_id=5)
    assert below.said("execution.requested")[0].meta["depth"] == 7
    assert folded(below.facts).depth == 7


def test_a_child_is_started_down_to_the_limit_and_refused_below_it() -> None:
    """INV-140."""
    allowed = Play(CALL + "}", depth=MAX_CHILD_DEPTH - 1)
    assert "child_execution_id" in allowed.said("command.issued")[0].meta

    refused = Play(CALL + "}", depth=MAX_CHILD_DEPTH)
    assert "child_execution_id" not in refused.said("command.issued")[0].meta
    failed = refused.said("command.failed")[0]
    assert failed.result["error"] == {
        "kind": "depth_limit",
        "code": "child_too_deep",
        "retryable": False,
        "message": "the playbook demo/child is not started: it would be 51 levels below the first execution, and"
        " runtime.scheduler.max_child_depth is 50",
    }
    assert (refused.end_kind, refused.ending.error) == ("playbook.failed", failed.error)


def test_the_step_may_go_on_from_the_refusal_as_from_any_error() -> None:
    handler = ", next: {arcs: [{step: b, when: \"{{ output.error.kind == 'depth_limit' }}\"}]}}\n{step: b}"
    play = Play(CALL + handler, depth=MAX_CHILD_DEPTH)
    assert play.entered() == ["a", "b"]
    assert play.ok("b").end_kind == "playbook.completed"


def test_what_was_decided_under_one_limit_stands_under_another() -> None:
    """INV-140: the events tell it, whatever the setting says when they are read again."""
    plan = plan_of(CALL + "}")
    state = State(execution_id=EXECUTION_ID)
    started = decide(plan, state, start_of(plan, depth=3), minting(), max_child_depth=4)
    refused = decide(plan, state, start_of(plan, depth=3), minting(), max_child_depth=3)
    assert folded(list(started.facts)).active.keys() == {"a"}
    assert folded(list(refused.facts)).status == "FAILED"
    again = decide(plan, started.state, start_of(plan, depth=3), minting(), max_child_depth=1)
    assert again.facts == ()


@pytest.mark.parametrize(("above", "most", "depth"), [(0, 1, 1), (4, 5, 5)])
def test_a_child_is_one_level_below_its_parent(above: int, most: int, depth: int) -> None:
    assert depth_below(above, most, "demo/child") == depth
    with pytest.raises(ChildTooDeep, match=f"demo/child.* {depth + 1} levels .*max_child_depth is {most}"):
        depth_below(above + 1, most, "demo/child")
