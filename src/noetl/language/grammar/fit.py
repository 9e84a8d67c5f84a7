"""Whether a value fits a shape, and what to say if it does not: a node and a shape go in, words for people come out."""

from __future__ import annotations

import re

from noetl.language.grammar.shapes import (
    Anything,
    Choice,
    Condition,
    Duration,
    Either,
    Flag,
    ListOf,
    MapOf,
    Number,
    Record,
    Shape,
    TaskByKind,
    Template,
    Text,
    Whole,
)
from noetl.language.grammar.tree import Node
from noetl.language.templates.template import is_template

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
TIMES = "seconds as a number, or with a unit: 500ms, 30s, 5m, 2h, 1d"
"""How a time is written."""
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_of(duration: float | str) -> float:
    """Return the seconds of a number, or of text such as `30s`."""
    if not isinstance(duration, str):
        return duration
    found = DURATION.fullmatch(duration)
    assert found is not None, "texts are held against the pattern first"
    return float(found[1]) * _SECONDS[found[2]]


def fits(node: Node, shape: Shape) -> bool:
    """Tell whether a value is of the kind a shape asks for, whatever its content."""
    value = node.value
    match shape:
        case Text() | Condition() | Choice():
            return isinstance(value, str)
        case Template():
            return is_template(value)
        case Duration():
            return _is_number(value) or (isinstance(value, str) and _is_time(value))
        case Whole():
            return isinstance(value, int) and not isinstance(value, bool)
        case Number():
            return _is_number(value)
        case Flag():
            return isinstance(value, bool)
        case ListOf():
            return isinstance(value, list)
        case Record() | MapOf() | TaskByKind():
            return isinstance(value, dict)
        case Either():
            return any(fits(node, one) for one in shape.shapes)
        case Anything():
            return True


def _is_time(text: str) -> bool:
    found = DURATION.fullmatch(text)
    return found is not None and float(found[1]) > 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def described(shape: Shape) -> str:
    """Say in words what a shape asks for."""
    match shape:
        case Text():
            return shape.described or "text"
        case Condition():
            return "a template such as \"{{ output.status == 'ok' }}\""
        case Choice():
            return " or ".join(shape.words)
        case Whole():
            return f"a whole number from {shape.minimum}" + ("" if shape.maximum is None else f" to {shape.maximum}")
        case Number():
            return "a number above 0" if shape.positive else "a number from 0"
        case Flag():
            return "true or false"
        case Duration():
            return f"a time above 0 ({TIMES})"
        case Template():
            return "a template"
        case ListOf():
            return "a list"
        case Record() | MapOf() | TaskByKind():
            return "a mapping"
        case Either():
            return " or ".join(described(one) for one in shape.shapes)
        case Anything():
            return "anything"


def refusal_of(node: Node, shape: Shape) -> str:
    """Say what a value of another kind must be; text that is not the right text is not told that it is text."""
    wanted = f"must be {described(shape)}"
    return wanted if isinstance(node.value, str) and _takes_text(shape) else f"{wanted}, not {kind_of(node)}"


def _takes_text(shape: Shape) -> bool:
    match shape:
        case Text() | Choice() | Duration() | Condition():
            return True
        case Either():
            return any(_takes_text(one) for one in shape.shapes)
        case _:
            return False


def kind_of(node: Node) -> str:
    """Say in words what kind of value a node is."""
    match node.value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"
