"""Old spellings mean what they meant: each becomes the value its canonical form becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.language.playbook.texts import HEAD, step, task

from noetl.errors import PlaybookInvalid
from noetl.language.playbook.model import Backoff, Playbook, Select, Then
from noetl.language.playbook.parse import parse

LEGACY = Path(__file__).parents[3] / "playbooks" / "legacy"


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
    assert legacy("result_on_a_step").steps["a"].tasks[1].output.select == (Select("$.total", "total"),)


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


def test_libraries_in_a_list_become_imports() -> None:
    code = legacy("libs_as_a_list").steps["a"].tasks[0].options["code"]
    assert code == "import json\nimport os.path\nimport collections as kinds\nresult = 1"
    assert task("kind: python, libs: [], code: result = 1").options == {"code": "result = 1"}


@pytest.mark.parametrize("libs", ['{json: "os; print(1)"}', '["os; print(1)"]', "[{json: json}]"])
def test_a_library_that_is_no_module_is_left_out_with_what_to_write(libs: str) -> None:
    found = parse(f"{HEAD}workflow: [{{step: a, tool: {{kind: python, libs: {libs}, code: x}}}}]")
    (told,) = found.warnings
    assert told.code == "no_effect"
    assert "deps: {packages" in (told.suggestion or "")
    assert found.playbook.steps["a"].tasks[0].options == {"code": "x"}


def test_what_was_expected_and_returned_is_left_out() -> None:
    found = legacy("assert")
    assert found.workbook["one"].options == {"code": "result = 1"}
    assert found.steps["a"].tasks[0].options == {"name": "one"}


def test_a_childs_task_is_left_out_and_a_workbooks_stays() -> None:
    assert legacy("task_of_a_child").steps["a"].tasks[0].options == {"path": "demo/b", "return_step": "end"}


def test_a_credential_becomes_auth() -> None:
    first, second = legacy("credential_for_auth").steps["a"].tasks
    assert (first.auth, second.auth) == ("pg", {"gcs": "store"})
    with pytest.raises(PlaybookInvalid, match="credential is not a field"):
        task("kind: postgres, auth: a, credential: b, command: SELECT 1")


def retries(step: str) -> list[tuple[str | None, Then] | None]:
    policies = [one.policy for one in legacy("retry").steps[step].tasks]
    return [policy and (policy.rules[0].when, policy.rules[0].then) for policy in policies]


def test_a_retry_becomes_a_rule() -> None:
    failed = "{{ output.status == 'error' }}"

    def of_kinds(*kinds: str) -> str:
        return f"{{{{ output.status == 'error' and output.error.kind in {list(kinds)} }}}}"

    def again(attempts: object, backoff: Backoff, delay: float) -> Then:
        return Then(do="retry", attempts=attempts, backoff=backoff, delay=delay)

    assert retries("a") == [(failed, again(5, "fixed", 2))]
    assert retries("b") == [(of_kinds("timeout", "db_timeout", "rate_limit"), again("{{ 2 + 2 }}", "linear", 0.5))]
    assert retries("c") == [
        (failed, again(7, "exponential", 1)),
        (failed, again(3, "exponential", 1)),
        None,
        (of_kinds("db_deadlock"), again(3, "fixed", 3)),
    ]


def test_what_a_retry_loses_is_said() -> None:
    text = (
        HEAD + "workflow: [{step: a, tool: {kind: noop, retry: {backoff_multiplier: 1.5, max_delay: 9, jitter: true}}}]"
    )
    (told,) = parse(text).warnings
    assert "retry (its delay doubles; max_delay and jitter have no effect)" in told.message


def test_kinds_of_others_keep_their_own_fields() -> None:
    text = HEAD + "workflow: [{step: a, tool: {kind: theirs, retry: {retry_when: x}, assert: 1, credential: c}}]"
    parsed = parse(text, kinds={"theirs"})
    assert [told.code for told in parsed.warnings if told.code == "legacy_spelling"] == []
    assert parsed.playbook.steps["a"].tasks[0].options == {
        "retry": {"retry_when": "x"}, "assert": 1, "credential": "c",
    }  # fmt: skip


def test_the_rows_number_is_read_by_its_name_of_today() -> None:
    found = legacy("loop_index").steps["a"]
    first, second = found.tasks
    assert first.options["cmds"] == (
        "echo {{ iter._index }} 'loop_index' {{ 'loop_index' ~ (iter._index + 1) ~ dict(loop_index=1) }}"
    )
    assert second.options["code"] == "result = '{{ loop_index }}'", "braces of a program are its own"
    assert found.set == {"ctx.last": "{{ loop.index }}"}


@pytest.mark.parametrize(
    "given",
    [
        "workload: {loop_index: 7}\nworkflow: [{step: a, loop: LOOP, tool: TOOL}]",
        "workflow: [{step: a, loop: LOOP, tool: TOOL, set: {ctx.loop_index: 7}}]",
        "workflow: [{step: a, loop: {in: [1], iterator: loop_index}, tool: TOOL}]",
        "workflow: [{step: a, tool: TOOL, input: {loop_index: 1}}]",
    ],
)
def test_a_name_of_the_playbooks_own_stays(given: str) -> None:
    body = given.replace("LOOP", "{in: [1], iterator: n}").replace(
        "TOOL", "{kind: shell, cmds: 'echo {{ loop_index }}'}"
    )
    parsed = parse(f"{HEAD}{body}\n")
    assert parsed.warnings == []
    assert parsed.playbook.steps["a"].tasks[0].options["cmds"] == "echo {{ loop_index }}"


def test_a_retry_by_status_asks_for_the_status_of_the_answer() -> None:
    found = task("kind: http, url: x, retry: {max_attempts: 4, retry_on_status: [429, 503], backoff_seconds: 2}")
    (rule,) = found.policy.rules
    assert rule.when == "{{ output.status == 'error' and output.error.http_status in [429, 503] }}"
    assert rule.then == Then(do="retry", attempts=4, backoff="fixed", delay=2)
    both = task("kind: http, url: x, retry: {retry_on: timeout, retry_on_status: 503}").policy.rules[0].when
    assert "(output.error.kind in ['timeout', 'db_timeout'] or output.error.http_status in [503])" in both


def test_entries_of_the_keychain_become_those_of_today() -> None:
    entries = {entry.name: entry for entry in legacy("keychain_kind_secrets").keychain}
    assert (entries["secret"].kind, entries["fixed"].options) == ("secret_manager", {"data": {"region": "eu"}})
    assert (entries["robot"].kind, entries["robot"].auth) == ("credential", "robot_account")
    assert (entries["shop"].kind, entries["shop"].auth) == ("credential", "shop_login")


def test_two_credentials_of_one_entry_are_refused() -> None:
    body = "keychain: [{name: k, kind: credential, auth: a, credential: b}]\nworkflow: [{step: a, tool: {kind: noop}}]"
    with pytest.raises(PlaybookInvalid, match="auth and credential name two credentials"):
        parse(HEAD + body)


def test_a_call_of_token_becomes_an_entry_of_the_keychain() -> None:
    header = 'headers: {A: "Bearer {{ token(who) }}", B: "{{ token(\'x y\') }} token(z)"}'
    body = f"workload: {{who: w}}\nworkflow: [{{step: a, tool: {{kind: http, url: x, {header}}}}}]"
    found = parse(HEAD + body).playbook
    assert [(entry.name, entry.kind, entry.auth) for entry in found.keychain] == [
        ("token_of_who", "token", "{{ who }}"),
        ("token_of_x_y", "token", "x y"),
    ]
    assert found.steps["a"].tasks[0].options["headers"] == {
        "A": "Bearer {{ keychain.token_of_who.token }}", "B": "{{ keychain.token_of_x_y.token }} token(z)",
    }  # fmt: skip


def test_a_name_that_the_playbook_gives_means_that() -> None:
    body = 'workload: {result: 1}\nworkflow: [{step: a, tool: {kind: noop}, set: {ctx.x: "{{ result }}"}}]'
    assert parse(HEAD + body).playbook.steps["a"].set == {"ctx.x": "{{ result }}"}


def test_a_path_is_kept_without_the_slash_before_it() -> None:
    text = HEAD.replace("path: demo/it", "path: /demo/it") + "workflow: [{step: /a/b, tool: {kind: noop}}]"
    found = parse(text).playbook
    assert (found.path, list(found.steps)) == ("demo/it", ["/a/b"])
