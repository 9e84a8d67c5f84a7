"""How a template's tree becomes a function of its names.

Expressions of the everyday kind become plain Python closures; the rest is left to Jinja. Both look names up, apply
operators and raise errors by the same sandbox, so they differ in speed alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jinja2 import Template as JinjaTemplate
from jinja2 import nodes

from noetl.playbook.closures import NotPlain, Render, closure_of, whole_of
from noetl.playbook.filters import OUTPUT_MAX, PLAIN, bounded, presentable
from noetl.playbook.hardened import hardened
from noetl.playbook.sandbox import SANDBOX, Absent, ran, refuse_absent
from noetl.playbook.views import View

Reading = Literal["value", "condition", "whole"]
"""How what an expression came to is taken: as its value, as what a condition asks, or as a result with its names."""


class FailedAt(Exception):
    """An error and the line of the template where it came up."""

    def __init__(self, line: int, error: Exception) -> None:
        super().__init__(line, error)
        self.line = line
        self.error = error


def value_of(expression: nodes.Expr, reading: Reading = "value") -> Render:
    """Return the function that gives an expression's own value, as a reading takes it."""
    try:
        closure = closure_of(expression) if reading == "value" else whole_of(expression)
    except NotPlain:
        return _value_by_jinja(expression, reading)
    line = expression.lineno

    def render(names: Mapping[str, Any]) -> Any:
        try:
            value = closure(names)
            return value if type(value) in PLAIN else _settled(value, reading)
        except Exception as error:
            raise FailedAt(line, error) from None

    return render


def _settled(value: Any, reading: Reading) -> Any:
    if reading == "whole" and isinstance(value, View):
        return value
    if reading == "condition":
        value = ran(value)
        if isinstance(value, View) and value.value is None:
            return True  # a step that ran and gave nothing has run all the same
    return presentable(value)


def text_of(tree: nodes.Template) -> Render:
    """Return the function that gives a template's text."""
    parts: list[Render] = []
    lines: list[int] = []
    try:
        for output in tree.body:
            if not isinstance(output, nodes.Output):
                raise NotPlain
            parts.extend(closure_of(part) for part in output.nodes)
            lines.extend(part.lineno for part in output.nodes)
    except NotPlain:
        return _text_by_jinja(tree)

    def render(names: Mapping[str, Any]) -> str:
        made: list[str] = []
        try:
            for part in parts:
                value = part(names)
                made.append(value if type(value) is str else str(presentable(value)))
        except Exception as error:
            raise FailedAt(lines[len(made)], error) from None
        text = "".join(made)
        if len(text) > OUTPUT_MAX:
            raise FailedAt(1, OverflowError(f"the text is longer than {OUTPUT_MAX} characters"))
        return text

    return render


def _value_by_jinja(expression: nodes.Expr, reading: Reading = "value") -> Render:
    # What is assigned keeps its names, so that every reading can be made of it.
    assignment = nodes.Assign(nodes.Name("noetl_value", "store"), expression, lineno=expression.lineno)
    template = SANDBOX.from_string(hardened(nodes.Template([assignment], lineno=1)))

    def render(names: Mapping[str, Any]) -> Any:
        context = template.new_context(names, shared=True)  # type: ignore[arg-type]
        absent = Absent.made
        try:
            for _ in template.root_render_func(context):
                pass
            value = _settled(context.vars["noetl_value"], reading)
            if Absent.made != absent:
                refuse_absent(value)
        except Exception as error:
            raise FailedAt(_line_in(template, error), error) from None
        return bounded(value)

    return render


def _text_by_jinja(tree: nodes.Template) -> Render:
    template = SANDBOX.from_string(hardened(tree))

    def render(names: Mapping[str, Any]) -> str:
        made, size = [], 0
        try:
            for part in template.root_render_func(template.new_context(names, shared=True)):  # type: ignore[arg-type]
                size += len(part)
                if size > OUTPUT_MAX:
                    raise OverflowError(f"the text is longer than {OUTPUT_MAX} characters")
                made.append(part)
        except Exception as error:
            raise FailedAt(_line_in(template, error), error) from None
        return "".join(made)

    return render


def _line_in(template: JinjaTemplate, error: Exception) -> int:
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line
