"""How a template's tree becomes a function of its names.

Expressions of the everyday kind become plain Python closures; the rest is left to Jinja. Both look names up, apply
operators and raise errors by the same sandbox, so they differ in speed alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jinja2 import Template as JinjaTemplate
from jinja2 import nodes

from noetl.language.templates.bounds.meter import METER
from noetl.language.templates.bounds.weights import OUTPUT_MAX, bounded, charge
from noetl.language.templates.closures import NotPlain, Render, closure_of, whole_of
from noetl.language.templates.filters import PLAIN, held, presentable
from noetl.language.templates.result_view import View
from noetl.language.templates.sandbox import SANDBOX, ran, refuse_absent
from noetl.language.templates.tree_rewrites import hardened

Reading = Literal["value", "condition", "whole"]
"""How what an expression came to is taken: as its value, as what a condition asks, or as a result with its names."""


_TOO_LONG = f"the text is longer than {OUTPUT_MAX} characters"
_GIVEN = (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const, nodes.Compare, nodes.Not)
"""Expressions that make no value of their own: what they come to is given, or true or false."""


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
    if not isinstance(expression, _GIVEN):
        evaluate = closure
        closure = lambda names: charge(evaluate(names))  # noqa: E731

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
        size = 0
        try:
            for part in parts:
                value = part(names)
                text = value if type(value) is str else str(held(value))
                size += len(text)
                if size > OUTPUT_MAX:
                    raise OverflowError(_TOO_LONG)
                made.append(text)
        except Exception as error:
            raise FailedAt(lines[len(made)], error) from None
        return "".join(made)

    return render


def _value_by_jinja(expression: nodes.Expr, reading: Reading = "value") -> Render:
    # What is assigned keeps its names, so that every reading can be made of it.
    assignment = nodes.Assign(nodes.Name("noetl_value", "store"), expression, lineno=expression.lineno)
    template = SANDBOX.from_string(hardened(nodes.Template([assignment], lineno=1)))

    def render(names: Mapping[str, Any]) -> Any:
        context = template.new_context(names, shared=True)  # type: ignore[arg-type]
        absent = METER.absent
        try:
            for _ in template.root_render_func(context):
                pass
            value = _settled(charge(context.vars["noetl_value"]), reading)
            if METER.absent != absent:
                refuse_absent(value)
            return bounded(value)
        except Exception as error:
            raise FailedAt(_line_in(template, error), error) from None

    return render


def _text_by_jinja(tree: nodes.Template) -> Render:
    template = SANDBOX.from_string(hardened(tree))

    def render(names: Mapping[str, Any]) -> str:
        made, size = [], 0
        try:
            for part in template.root_render_func(template.new_context(names, shared=True)):  # type: ignore[arg-type]
                size += len(part)
                if size > OUTPUT_MAX:
                    raise OverflowError(_TOO_LONG)
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
