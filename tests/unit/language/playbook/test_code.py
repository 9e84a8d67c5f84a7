"""Templates in code are found and never rendered; braces that Python itself means are left alone."""

from __future__ import annotations

import pytest
from tests.unit.language.playbook.texts import HEAD

from noetl.language.playbook.checks.all_checks import problems_of


def told(code: str, kind: str = "python") -> list[tuple[int, str | None]]:
    lines = code.replace("\n", "\n        ")
    body = f"workload: {{size: 1}}\nworkflow:\n  - step: a\n    tool:\n      kind: {kind}\n      code: |\n        {lines}\n"
    first = HEAD.count("\n") + 6
    return [
        (problem.line - first, problem.suggestion)
        for problem in problems_of(HEAD + body)
        if problem.code == "template_in_code"
    ]


def test_a_template_in_code_is_told_with_the_input_to_write() -> None:
    hint = 'write input: {size: "{{ size }}"}, and size in the code'
    assert told("x = 1\nresult = {{ size }} * 2") == [(2, hint)]
    assert told("result = '{{ size }}'") == [(1, hint)]
    assert told("def main(session):\n    return {{ size }}", kind="spark") == [(2, hint)]
    ((_, hint),) = told("result = {{ workload.size | default(3) }}")
    assert hint == 'write input: {workload_size: "{{ workload.size | default(3) }}"}, and workload_size in the code'


@pytest.mark.parametrize(
    "code",
    [
        'result = f"{{size}}"',
        'result = rf"""\n{{size}}\n"""',
        "result = 1  # {{ size }}",
        "result = '{{ name }}'.format()",
        "result = {'a': {'b': 1}}",
    ],
)
def test_braces_of_python_are_no_templates(code: str) -> None:
    assert told(code) == []


def test_code_that_is_no_python_is_looked_through_as_text() -> None:
    assert [line for line, _ in told("{% if size %}\nresult = {{ size }}\n{% endif %}")] == [2]
