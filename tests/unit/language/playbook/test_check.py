"""What is said about names, places in templates and the graph, beyond what the corpus pins."""

from __future__ import annotations

from tests.unit.language.playbook.texts import HEAD

from noetl.language.playbook.checks.all_checks import check, problems_of
from noetl.language.playbook.parse import parse


def codes(body: str) -> list[tuple[str, int, str | None]]:
    return [(one.code, one.line, one.suggestion) for one in problems_of(HEAD + body)]


def test_a_name_in_a_block_is_found_on_its_line() -> None:
    body = "workload: {table: t}\nworkflow:\n  - step: a\n    tool:\n      kind: postgres\n      command: |\n        SELECT 1\n        FROM {{ tabel }};\n"
    assert codes(body) == [("undefined_name", 11, "did you mean table?")]


def test_a_clock_is_told_what_to_use_instead() -> None:
    whole = 'workflow: [{step: a, tool: {kind: noop}, set: {ctx.at: "{{ now() }}"}}]'
    broken = 'workflow: [{step: a, tool: {kind: noop, of: 1}, set: {ctx.at: "{{ now() }}"}}]'
    for body in (whole, broken):
        told = {code: hint for code, _, hint in codes(body)}
        assert "take it in a python task, or in SQL" in (told["undefined_name"] or "")


def test_a_name_that_only_a_request_can_bring_refuses_nothing() -> None:
    body = 'workload: {api: x}\nworkflow: [{step: a, tool: {kind: http, url: "{{ api }}{{ town }}"}}]'
    assert [(one.code, one.severity) for one in problems_of(HEAD + body)] == [("undefined_name", "warning")]
    broken = 'workload: {api: x}\nworkflow: [{step: a, tool: {kind: http, of: 1, url: "{{ town }}", params: {x: "{{ apii }}"}}}]'
    assert [(code, hint) for code, _, hint in codes(broken) if code == "undefined_name"] == [
        ("undefined_name", "did you mean api?")
    ]


def test_a_program_is_not_a_template() -> None:
    assert codes("workflow: [{step: a, tool: {kind: python, code: \"result = f'{{x}}'\"}}]") == []


def test_names_are_those_of_the_place_they_stand_in() -> None:
    body = """workload: {api: x}
workflow:
  - step: one
    input: {given: 1}
    loop: {in: [1], iterator: row}
    tool:
      - {name: get, kind: http, url: "{{ api }}{{ given }}{{ row }}{{ own }}", input: {own: 1}}
      - {name: put, kind: http, url: "{{ get.data }}{{ one.data }}{{ event.name }}{{ now_set }}"}
    set: {now_set: "{{ output.data }}"}
"""
    assert codes(body) == []


def test_the_input_of_one_task_is_no_name_of_the_next() -> None:
    body = 'workflow: [{step: a, tool: [{kind: noop, input: {own: 1}}, {kind: http, url: "{{ own }}"}]}]'
    assert [code for code, _, _ in codes(body)] == ["undefined_name"]


def test_names_a_template_makes_itself_are_known() -> None:
    body = 'workload: {rows: []}\nworkflow: [{step: a, tool: {kind: shell, cmds: "{% for r in rows %}{{ r }}{{ loop.index }}{% endfor %}"}}]'
    assert codes(body) == []


def test_a_task_of_the_workbook_sees_the_names_of_the_steps_that_use_it() -> None:
    body = """workbook: [{name: w, tool: {kind: http, url: "{{ t }}{{ row }}"}}]
workflow: [{step: a, input: {t: 1}, loop: {in: [1], iterator: row}, tool: {kind: workbook, name: w}}]
"""
    assert codes(body) == []


def test_a_guarded_value_may_be_missing() -> None:
    body = 'workflow: [{step: a, tool: {kind: http, url: "{{ ctx.x | default(1) }}{{ workload.y if workload.y is defined }}"}}]'
    assert codes(body) == []


def test_a_broken_template_does_not_hide_the_rest() -> None:
    body = 'workflow: [{step: a, tool: {kind: http, url: "{{ a b }}", params: {x: "{{ nobody }}"}}}]'
    assert [code for code, _, _ in codes(body)] == ["template_invalid", "undefined_name"]


def test_a_step_that_leads_to_itself_is_reachable_and_no_reducer() -> None:
    assert (
        codes('workflow: [{step: a, tool: {kind: noop}, next: {arcs: [{step: a, when: "{{ ctx.go | default(1) }}"}]}}]')
        == []
    )


def test_a_final_step_needs_no_arc() -> None:
    body = "executor: {spec: {final_step: z}}\nworkflow: [{step: a, tool: {kind: noop}}, {step: z, tool: {kind: noop}}]"
    assert codes(body) == []


def test_a_misspelt_step_is_told_with_the_one_that_is_meant() -> None:
    body = "workflow: [{step: fetch, tool: {kind: noop}, next: {arcs: [{step: fecth}]}}]"
    assert codes(body) == [("unknown_step", 4, "did you mean fetch?")]


def test_checking_names_the_file() -> None:
    parsed = parse(HEAD + "workflow: [{step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}]", file="x.yaml")
    assert [str(one) for one in check(parsed)] == ["x.yaml:4:63: error unknown_step: there is no step b (known: a)"]


def test_a_filter_that_does_nothing_is_told_in_a_playbook_of_the_wrong_structure_too() -> None:
    body = 'workflow: [{step: a, tool: {kind: shell, cmds: "{{ 1 | encrypt_secret }}"}, nxt: {}}]'
    hint = "keep the secret as a credential, and name it in auth or read it from the keychain"
    assert ("filter_unavailable", 4, hint) in codes(body)
