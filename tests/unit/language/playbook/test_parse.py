"""What a playbook's text becomes: every construct with the values it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.language.playbook.texts import HEAD, playbook, step, task

from noetl.errors import PlaybookInvalid
from noetl.language.playbook.model import Fanout, FramePolicy, Place, Playbook, Select
from noetl.language.playbook.parse import parse

GOOD = Path(__file__).parents[3] / "playbooks" / "good"


def good(name: str) -> Playbook:
    return parse((GOOD / f"{name}.yaml").read_text()).playbook


def test_the_root_becomes_a_playbook() -> None:
    found = good("root_keys")
    assert (found.name, found.path, found.entry, found.final) == ("root_keys", "demo/root_keys", "go", "tidy")
    assert found.metadata["owner"] == "somebody"
    assert found.executor["profile"] == "auto"
    assert found.workload == {"who": "world"}
    assert list(found.steps) == ["go", "tidy"]
    secret = found.keychain[0]
    assert (secret.name, secret.kind, secret.scope, secret.auth, secret.ttl) == (
        "api", "secret_manager", "shared", "vault_login", 3600,
    )  # fmt: skip
    assert secret.options["map"] == {"token": "kv/api"}


def test_the_path_is_the_name_where_none_is_given() -> None:
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\nworkflow: [{step: a, tool: {kind: noop}}]\n"
    assert parse(text).playbook.path == "x"


def test_the_first_step_is_the_entry() -> None:
    assert playbook("workflow: [{step: b, tool: {kind: noop}}, {step: a, tool: {kind: noop}}]").entry == "b"


def test_a_step_keeps_all_it_says_about_itself() -> None:
    found = good("step_spec").steps["guarded"]
    assert found.timeout == 300
    assert found.failure == "best_effort"
    assert [(rule.when, rule.allow) for rule in found.admit] == [
        ("{{ input.limit > 0 }}", True),
        (None, "{{ limit > 5 }}"),
    ]
    assert found.set == {"total": 1, "ctx.deep.total": 2, "step.seen": True}
    assert found.router is not None
    assert (found.router.mode, found.router.on_no_match) == ("exclusive", "quiet")
    arc = found.router.arcs[0]
    assert (arc.step, arc.when, arc.set) == ("after", "{{ ctx.total == 1 }}", {"ctx.done": True})


def test_a_lifecycle_bounds_the_step_where_no_timeout_does() -> None:
    assert step("tool: {kind: noop}, spec: {policy: {lifecycle: {timeout_s: 60}}}").timeout == 60


def test_a_single_tool_is_no_sequence_and_is_called_like_its_step() -> None:
    found = step("tool: {kind: noop}")
    assert not found.is_sequence
    assert [one.name for one in found.tasks] == ["a"]


def test_tasks_without_a_name_are_counted() -> None:
    found = step("tool: [{kind: noop}, {name: x, kind: noop}, {kind: noop}]")
    assert found.is_sequence
    assert [one.name for one in found.tasks] == ["task_1", "x", "task_3"]


def test_a_policy_keeps_its_rules_in_order() -> None:
    policy = good("policies").steps["work"].tasks[0].policy
    assert policy is not None
    assert policy.on_unmatched == "fail"
    assert [rule.then.do for rule in policy.rules] == ["retry", "retry", "fail", "break", "continue"]
    first = policy.rules[0].then
    assert (first.attempts, first.backoff, first.delay) == ("{{ tries }}", "fixed", 0.5)
    assert policy.rules[1].then.delay == 1.0
    assert policy.rules[-1].when is None
    assert policy.rules[-1].then.set == {"iter.page": 1}


def test_an_output_block_becomes_what_happens_to_the_result() -> None:
    work = good("outputs").steps
    output = work["work"].tasks[0].output
    assert output is not None
    assert output.accumulate is not None
    assert output.select == (Select("$.data.total", "total"), Select("$.items[0]", "first"))
    assert (output.accumulate.strategy, output.accumulate.max_items) == ("concat", 10)
    assert output.inline_max_bytes == 1024
    unused = work["unused"].tasks[0].output
    assert unused is not None
    assert unused.accumulate is None


def test_loops_keep_mode_bounds_and_frames() -> None:
    steps = good("loop_kinds").steps
    fanned, drained = steps["fanned"].loop, steps["drained"].loop
    assert steps["sequential"].loop.collection == [1, 2]
    assert (fanned.mode, fanned.fanout) == ("fanout", Fanout(fail_fast=True, allow_partial=False, max_shard_retries=0))
    assert (drained.cursor.kind, drained.cursor.auth, drained.cursor.options["pool_size"]) == ("postgres", "pg", 8)
    assert (drained.max_in_flight, drained.frame.max_rows) == ("{{ slots }}", "{{ size }}")
    assert (drained.frame.commit, drained.frame.retry_mode) == ("frame", "resume")


def test_a_loop_without_a_frame_gets_the_usual_bounds() -> None:
    assert step("loop: {in: [1], iterator: n}, tool: {kind: noop}").loop.frame == FramePolicy()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a", {"method": "POST", "url": "http://x/", "headers": {"A": "b"}, "params": {"q": 1}, "body": {"a": 1}, "body_kind": "json", "follow_redirects": "{{ flag }}", "verify_ssl": False}),
        ("b", {"method": "{{ 'PUT' }}", "url": "http://x/", "body": {"a": 1}, "body_kind": "form"}),
        ("c", {"url": "http://x/", "body": "text", "body_kind": "data"}),
        ("d", {"url": "http://x/", "body": {"a": "{{ a.data }}"}, "body_kind": "body"}),
        ("e", {"command": "SELECT 1", "params": [1, "x"], "pool": {"size": 2}}),
        ("f", {"command": ["SELECT 1", "SELECT 2"]}),
        ("g", {"command": "SELECT 1"}),
        ("k", {"script": "lib/x.py"}),
        ("m", {"cmds": "echo 1"}),
        ("n", {"path": "demo/pages", "version": 2, "return_step": "end"}),
        ("shared", {"name": "shared"}),
        ("q", {"name": "shared"}),
        ("u", {"ref": "{{ s }}"}),
        ("x", {"operation": "js_consume", "stream": "s", "consumer": "d", "batch": 5, "timeout": 2, "ack": True}),
        ("y", {}),
    ],
)  # fmt: skip
def test_every_spelling_of_a_field_is_handed_on_under_one_name(name: str, options: dict[str, object]) -> None:
    tasks = {one.name: one for one in good("kinds").steps["all"].tasks}
    assert tasks[name].options == options


def test_the_timeout_of_a_kind_bounds_the_try() -> None:
    tasks = {one.name: one for one in good("kinds").steps["all"].tasks}
    assert [tasks[name].timeout for name in ("a", "k", "l", "n", "x")] == [8, 60.0, 5, 1200, None]


def test_the_timeout_of_the_spec_comes_before_that_of_the_kind() -> None:
    found = task("kind: http, url: x, timeout: 8, spec: {timeout: 500ms}")
    assert (found.timeout, found.options["timeout"]) == (0.5, 8)


def test_the_payload_of_a_playbook_is_its_input() -> None:
    assert task("kind: playbook, path: x, payload: {a: 1}").input == {"a": 1}


def test_an_object_in_nats_may_go_by_the_name_of_a_single_task() -> None:
    assert task("kind: nats, operation: object_get, bucket: b, name: report.pdf").options["name"] == "report.pdf"
    assert "name" not in task("kind: nats, operation: kv_keys, bucket: b, name: label").options


def test_fields_of_a_further_kind_are_not_checked() -> None:
    found = task("kind: fax, number: 5, timeout: soon", kinds=["fax"])
    assert found.options == {"number": 5, "timeout": "soon"}


def test_a_kind_that_is_not_of_this_build_can_be_brought_along() -> None:
    assert task("kind: rhai, server: x", kinds=["rhai"]).options == {"server": "x"}


def test_everything_wrong_is_told_at_once_with_file_line_column_and_what_to_write() -> None:
    text = HEAD + "vars: {}\nworkflow:\n  - step: a\n    tool: {kind: htp}\n    nxt: b\n"
    with pytest.raises(PlaybookInvalid) as refused:
        parse(text, file="x.yaml")
    assert refused.value.message.split("\n") == [
        "x.yaml:4:1: error removed_field: vars is not part of the language any more"
        " (write defaults under workload, and values that change under set: {ctx.name: …})",
        "x.yaml:7:18: error unknown_kind: there is no kind of task htp (did you mean http?)",
        "x.yaml:8:5: error unknown_field: workflow[a].nxt is not a field of the step (did you mean next?)",
    ]
    assert [problem.line for problem in refused.value.details["problems"]] == [4, 7, 8]


def test_a_place_is_found_by_the_names_of_steps_and_tasks() -> None:
    parsed = parse(HEAD + "workflow:\n  - step: a\n    tool:\n      - {name: t, kind: http, url: x}\n")
    assert parsed.place("workflow", "a", "tool", "t", "url") == Place(7, 31)
    assert parsed.place("workflow", 0, "tool", 0, "nothing") == Place(7, 9)
    assert parsed.place("workflow", 9) == Place(4, 1)


def test_the_digest_is_that_of_what_was_written() -> None:
    canonical = parse(HEAD + "workflow: [{step: a, tool: {kind: noop}, next: {arcs: [{step: a}]}}]").playbook
    old = parse(HEAD + "workflow: [{step: a, tool: {kind: noop}, next: a}]").playbook
    assert canonical.steps["a"].router.arcs[0].step == old.steps["a"].router.arcs[0].step
    assert canonical.digest != old.digest
    assert len(old.digest) == 64


def test_what_is_no_time_is_refused_with_what_is_one() -> None:
    file = GOOD.parent / "bad" / "not_a_time.yaml"
    with pytest.raises(PlaybookInvalid) as refused:
        parse(file.read_text())
    said = str(refused.value)
    assert said.count("must be a time above 0 (seconds as a number, or with a unit: 500ms, 30s, 5m, 2h, 1d)") == 6
    assert "not text" not in said
