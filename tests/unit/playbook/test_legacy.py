"""Old spellings mean what they meant: each becomes the value its canonical form becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.playbook.model import Playbook, Select
from noetl.playbook.parse import parse

from .texts import step, task

LEGACY = Path(__file__).parents[2] / "playbooks" / "legacy"


def legacy(name: str) -> Playbook:
    return parse((LEGACY / f"{name}.yaml").read_text()).playbook


def test_next_becomes_arcs() -> None:
    assert [arc.step for arc in legacy("next_as_text").steps["a"].router.arcs] == ["b"]
    first, second = legacy("next_as_list").steps["a"].router.arcs
    assert (first.step, first.when, second.step) == ("b", "{{ ctx.go | default(true) }}", "a")


def test_a_label_becomes_a_name() -> None:
    found = legacy("task_under_its_label").steps["a"].tasks[0]
    assert (found.name, found.kind) == ("fetch", "http")


def test_args_and_endpoint_become_input_and_url() -> None:
    assert legacy("args_for_input").steps["a"].tasks[0].input == {"n": 1}
    assert legacy("endpoint_for_url").steps["a"].tasks[0].options == {"url": "http://x/"}


def test_set_ctx_and_set_iter_become_set() -> None:
    policy = legacy("set_ctx_and_set_iter").steps["a"].tasks[0].policy
    assert policy.rules[0].then.set == {"ctx.a": 1, "iter.b": 2}


def test_else_without_then_keeps_its_verb() -> None:
    assert legacy("else_without_then").steps["a"].tasks[0].policy.rules[0].then.do == "continue"


def test_true_and_false_become_templates() -> None:
    found = legacy("when_true")
    assert found.steps["a"].router.arcs[0].when == "{{ true }}"
    assert found.steps["b"].admit[0].when == "{{ false }}"


def test_selected_names_become_paths_on_the_last_task() -> None:
    found = legacy("output_select")
    assert found.steps["a"].tasks[0].output is None
    assert found.steps["a"].tasks[1].output.select == (Select("$.total", "total"),)
    assert found.steps["b"].tasks[0].output.select == (Select("$.total", "total"),)


def test_a_frame_policy_becomes_the_frame() -> None:
    loop = legacy("frame_policy_on_the_step").steps["a"].loop
    assert (loop.frame.max_rows, loop.frame.max_seconds, loop.frame.max_bytes) == (50, 1.5, 1000)
    assert (loop.max_in_flight, loop.frame.row_concurrency) == (2, 1)
    assert legacy("frame_policy_on_the_loop").steps["a"].loop.frame.max_seconds == "{{ (500 + 1) / 1000 }}"
    assert legacy("frame_policy_in_the_spec").steps["a"].loop.frame.max_rows == 5


def test_a_frame_policy_and_a_frame_are_merged() -> None:
    loop = legacy("frame_policy_beside_a_frame").steps["a"].loop
    frame = loop.frame
    assert (frame.max_rows, frame.max_seconds, frame.max_bytes, frame.commit) == (50, 1.5, 1000, "frame")
    assert loop.max_in_flight == 4


@pytest.mark.parametrize("name", ["loop_mode_on_the_step", "loop_mode_on_the_executor"])
def test_a_loop_mode_becomes_the_mode_of_the_loop(name: str) -> None:
    assert legacy(name).steps["a"].loop.mode == "fanout"


def test_a_loop_mode_leaves_cursors_and_given_modes_alone() -> None:
    fields = "spec: {loop_mode: fanout}, loop: {in: [1], iterator: n, spec: {mode: parallel}}, tool: {kind: noop}"
    assert step(fields).loop.mode == "parallel"


def test_a_step_without_tool_does_nothing() -> None:
    assert [one.tasks[0].kind for one in legacy("step_without_tool").steps.values()] == ["noop", "noop"]


def test_an_iterator_becomes_a_loop() -> None:
    found = legacy("iterator_kind").steps["a"]
    assert (found.loop.collection, found.loop.iterator, found.loop.mode, found.loop.max_in_flight) == (
        [1],
        "n",
        "parallel",
        4,
    )
    assert found.tasks[0].kind == "noop"


def test_small_spellings_become_todays() -> None:
    assert legacy("tags_as_text").metadata["tags"] == ["one", "two"]
    assert legacy("timeout_in_parts").steps["a"].tasks[0].timeout == 20
    assert legacy("script_endpoint").steps["a"].tasks[0].options["script"]["uri"] == "http://x/x.py"


def test_libraries_become_imports() -> None:
    code = legacy("libs").steps["a"].tasks[0].options["code"]
    assert code == "import json as json\nfrom datetime import datetime as dt\nresult = 1"


def test_a_library_that_is_no_module_is_refused() -> None:
    from noetl.errors import PlaybookInvalid

    with pytest.raises(PlaybookInvalid, match="libs is not a field"):
        task('kind: python, libs: {json: "os; print(1)"}, code: x')
