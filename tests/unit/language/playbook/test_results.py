"""What templates read of results: fields that no result of a kind has are found, and nothing else is."""

from __future__ import annotations

import pytest
from tests.unit.language.playbook.texts import HEAD

from noetl.language.playbook.checks.all_checks import problems_of
from noetl.language.playbook.checks.result_shapes import NATS_RESULTS, RESULTS
from noetl.language.playbook.kinds.data import DATA_KINDS

AFTER = "next: {arcs: [{step: b}]}"


def told(body: str) -> list[str]:
    return [
        problem.message.split(" is never there")[0]
        for problem in problems_of(f"{HEAD}workflow:\n{body}")
        if problem.code == "never_in_result"
    ]


def read_after(tool: str, read: str, more: str = "") -> list[str]:
    """Return what is told of a template in a step that follows one with a tool."""
    return told(
        f"  - {{step: a, tool: {tool}, {more}{AFTER}}}\n"
        f'  - {{step: b, tool: {{kind: python, input: {{x: "{{{{ {read} }}}}"}}, code: x}}}}'
    )


@pytest.mark.parametrize(
    ("tool", "fine", "wrong"),
    [
        ("{kind: http, url: x}", "a.status_code", "a.code"),
        ("{kind: http, url: x}", "a.data.rows[0].id", "a.json"),
        ("{kind: http, url: x}", "a.body", "a.text"),
        ("{kind: postgres, auth: p, command: x}", "a.rows[0].id", "a.records"),
        ("{kind: postgres, auth: p, command: x}", "a.result.rows", "a.result.records"),
        ("{kind: postgres, auth: p, command: x}", "a.data.command_12.rows", "a.command_x"),
        ("{kind: postgres, auth: p, command: x}", "a.command_0.row_count", "a.command_0.count"),
        ("{kind: duckdb, command: x}", "a.columns", "a.command_0"),
        ("{kind: shell, cmds: x}", "a.exit_code", "a.output"),
        ("{kind: transfer, source: {type: http, url: x}, target: {type: http, url: x}}", "a.rows_written", "a.rows"),
        ("{kind: nats, operation: kv_get, bucket: b, key: k}", "a.value", "a.keys_found"),
        ("{kind: nats, operation: kv_keys, bucket: b}", "a.count", "a.value"),
        ("{kind: artifact, action: put, input: {data: 1}}", "a.uri", "a.name"),
        ("{kind: playbook, path: p, wait: false}", "a.execution_id", "a.total"),
        ("{kind: noop}", "a.status", "a.total"),
    ],
)
def test_each_kind_has_the_fields_it_comes_to_and_no_others(tool: str, fine: str, wrong: str) -> None:
    """INV-170."""
    assert read_after(tool, fine) == []
    assert read_after(tool, wrong) == [wrong]
    assert read_after(tool, f"{wrong} | default(0)") == [wrong], "it quietly comes to nothing, whatever the task did"


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: python, code: x}",
        "{kind: playbook, path: p, wait: true}",
        "{kind: result_fetch, ref: x}",
        "[{kind: http, url: x}, {kind: python, code: x}]",
        "[{name: c, kind: python, code: x}, {kind: noop}]",
    ],
)
def test_nothing_is_said_of_what_can_come_to_anything(tool: str) -> None:
    assert read_after(tool, "a.whatever.it.has") == []


def test_what_every_step_has_is_no_field_of_a_kind() -> None:
    """What is selected, gathered or stored aside, and methods of mappings, are found in all of them."""
    tool = "{kind: http, url: x, output: {select: [{path: $.data.n, as: n}]}}"
    for read in ("a.n", "a._ref.uri", "a._store", "a.accumulated", "a.status", "a.get('x')", "a.items() | list"):
        assert read_after(tool, read) == []


def test_a_list_of_tasks_comes_to_its_last_or_to_one_that_ends_it() -> None:
    ends = "spec: {policy: {rules: [{else: {then: {do: break}}}]}}"
    two = "[{name: c, kind: shell, cmds: x, %s}, {name: d, kind: http, url: x}]"
    assert read_after(two % "timeout: 1", "a.stdout") == ["a.stdout"]
    assert read_after(two % ends, "a.stdout") == []
    assert read_after(two % ends, "a.rows") == ["a.rows"]
    assert read_after(two % "timeout: 1", "a.results.c.stdout") == []
    assert read_after(two % "timeout: 1", "a.results.d.stdout") == ["a.results.d.stdout"]
    assert read_after(two % "timeout: 1", "a.results.e") == ["a.results.e"]


def test_a_loop_comes_to_its_counts() -> None:
    loop = "loop: {in: [1], iterator: row}, "
    assert read_after("{kind: shell, cmds: x}", "a.results[0].stdout", loop) == []
    assert read_after("{kind: shell, cmds: x}", "a.stats.total", loop) == []
    assert read_after("{kind: shell, cmds: x}", "a.stdout", loop) == ["a.stdout"]


def test_names_that_stand_for_something_else_are_left_alone() -> None:
    """An input, an iterator and a variable of the template come before a step of the same name."""
    body = """  - {step: a, tool: {kind: shell, cmds: x}, next: {arcs: [{step: b}]}}
  - step: b
    loop: {in: [1], iterator: a}
    tool: {kind: shell, cmds: "{{ a.id }}"}
    next: {arcs: [{step: c}]}
  - step: c
    tool: {kind: http, url: "http://{{ a.host }}/", input: {a: {host: x}}}
    next: {arcs: [{step: d}]}
  - {step: d, tool: {kind: shell, cmds: "{% for a in [{'id': 1}] %}{{ a.id }}{% endfor %}"}}
"""
    assert told(body) == []


def test_what_output_stands_for_depends_on_where_it_is_read() -> None:
    body = """  - step: a
    tool:
      - {name: q, kind: postgres, auth: p, command: x, set: {ctx.n: "{{ output.row_count }} {{ output.rows }}"}}
      - {name: s, kind: shell, cmds: "{{ _prev.rows }} {{ _prev.stdout }}", set: {ctx.m: "{{ output.data.rows }}"}}
    set: {ctx.k: "{{ output.data.stdout }} {{ output.error.kind }}", ctx.l: "{{ output.data.rows }}"}
"""
    assert told(body) == ["_prev.stdout", "output.data.rows", "output.data.rows"]


def test_every_operation_of_nats_has_a_shape() -> None:
    operations = DATA_KINDS["nats"].fields["operation"].shape.words  # type: ignore[union-attr]
    assert set(NATS_RESULTS) == set(operations)
    assert "python" not in RESULTS
