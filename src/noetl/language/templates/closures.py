"""Everyday expressions as plain Python functions: a parsed expression goes in, a function of the names comes out.

What is not of the everyday kind is refused with `NotPlain` and left to Jinja. An expression is asked for its value, or
for what stands before a dot or in a condition, where a result still has the names beside it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.nodes import EvalContext
from jinja2.utils import _PassArg

from noetl.language.templates.bounds.operators import arithmetic, searched
from noetl.language.templates.bounds.weights import OUTPUT_MAX, TOO_LARGE, charge
from noetl.language.templates.filters import PLAIN, held, resolved
from noetl.language.templates.result_view import View, alone
from noetl.language.templates.sandbox import SANDBOX, error_field, ran, reached_item

Render = Callable[[Mapping[str, Any]], Any]

_EVALUATION = EvalContext(SANDBOX)
_MISSING = object()
DEFAULTS = frozenset({"default", "d"})
SEARCHES = frozenset({"in", "notin"})
GUARDS = DEFAULTS | {"defined", "undefined"}
"""Filters and tests that a missing name may be asked about."""


class NotPlain(Exception):
    """An expression that is left to Jinja."""


def closure_of(node: nodes.Node) -> Render:
    """Return the function that evaluates an expression, or raise `NotPlain`."""
    make = _CLOSURES.get(type(node))
    if make is None:
        raise NotPlain
    return make(node)


def whole_of(node: nodes.Node) -> Render:
    """Return the function that evaluates what stands before a dot or in a condition: results keep their names there."""
    make = _WHOLES.get(type(node))
    if make is None or (isinstance(node, nodes.Filter) and node.name not in DEFAULTS):
        return closure_of(node)
    return make(node)


def _constant(node: Any) -> Render:
    value = node.data if isinstance(node, nodes.TemplateData) else node.value
    return lambda _: value


def _name(node: nodes.Name) -> Render:
    whole = _whole_name(node)

    def find(names: Mapping[str, Any]) -> Any:
        value = whole(names)
        return value.value if isinstance(value, View) else value

    return find


def _whole_name(node: nodes.Name) -> Render:
    name = node.name
    if name in SANDBOX.globals:
        raise NotPlain

    def find(names: Mapping[str, Any]) -> Any:
        try:
            value = names[name]
        except KeyError:
            return SANDBOX.undefined(name=name)
        return value if type(value) in PLAIN else resolved(value)

    return find


def _path(node: nodes.Getattr | nodes.Getitem, *, may_lack: bool = False) -> Render:
    """Return one function for a whole path such as `fetch.rows[0].id`: calls are what it costs to evaluate.

    One that `may_lack` a part on the way comes to what is missing.
    """
    keys: list[str | int] = []
    owner: nodes.Node = node
    while (key := _key(owner)) is not None:
        keys.insert(0, key)
        owner = owner.node  # type: ignore[attr-defined]
    if not keys:
        return _item(node, may_lack=may_lack)
    of = _guarded(owner) if may_lack else whole_of(owner)
    by_name, by_place = SANDBOX.getattr, SANDBOX.getitem

    def find(names: Mapping[str, Any]) -> Any:
        value = of(names)
        for key in keys:
            if type(key) is str:
                if type(value) is View:
                    # The names of an outcome are asked for once per task, so they are found here, too.
                    found = value.before.get(key, _MISSING)
                    if type(found) in PLAIN:
                        value = found
                        continue
                elif type(value) is dict:
                    found = value.get(key, _MISSING)
                    if type(found) in PLAIN:
                        value = found
                        continue
            if may_lack and isinstance(value, Undefined):
                return value
            value = by_place(value, key) if isinstance(key, int) else by_name(value, key)
        return value

    return find


def _key(node: nodes.Node) -> str | int | None:
    """Return what a node adds to a path, if that is known beforehand."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and type(node.arg.value) is int:
        return node.arg.value
    return None


def _item(node: Any, *, may_lack: bool = False) -> Render:
    if isinstance(node.arg, nodes.Slice):
        raise NotPlain
    of, at = _guarded(node.node) if may_lack else whole_of(node.node), closure_of(node.arg)
    look_up = reached_item if may_lack else SANDBOX.getitem
    return lambda names: look_up(of(names), at(names))


def _guarded(node: nodes.Node) -> Render:
    """Return the function that evaluates what `default` or `is defined` is asked about: any part of it may be missing."""
    if isinstance(node, nodes.Getattr | nodes.Getitem):
        return _path(node, may_lack=True)
    return whole_of(node)


def _called(node: nodes.Filter | nodes.Test) -> Render:
    known: Mapping[str, Any] = SANDBOX.filters if isinstance(node, nodes.Filter) else SANDBOX.tests
    function = known.get(node.name)
    passes = None if function is None else _PassArg.from_obj(function)
    if (
        node.node is None
        or function is None
        or node.kwargs
        or node.dyn_args
        or node.dyn_kwargs
        or passes is _PassArg.context
    ):
        raise NotPlain
    if function is error_field and node.args and isinstance(node.args[0], nodes.Const):
        return _error_field(closure_of(node.node), node.args[0].value)
    value, args = closure_of(node.node), [closure_of(arg) for arg in node.args]
    if node.name in GUARDS:
        found = _guarded(node.node)
        value = lambda names: alone(found(names))  # noqa: E731
    if passes is not None:
        first = _EVALUATION if passes is _PassArg.eval_context else SANDBOX
        return lambda names: function(first, value(names), *[arg(names) for arg in args])
    if not args:
        return lambda names: function(value(names))
    return lambda names: function(value(names), *[arg(names) for arg in args])


def _default(node: nodes.Filter) -> Render:
    """Return the function of `x | default(y)` where names are asked for below it."""
    if node.node is None or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise NotPlain
    function, value = SANDBOX.filters[node.name], _guarded(node.node)
    args = [whole_of(node.args[0])] if node.args else []
    args += [closure_of(arg) for arg in node.args[1:]]
    return lambda names: function(value(names), *[arg(names) for arg in args])


def _error_field(of: Render, name: str) -> Render:
    """Return one function for a field of `output.error`, which rules ask for once per task."""

    def find(names: Mapping[str, Any]) -> Any:
        error = of(names)
        if type(error) is dict:
            found = error.get(name)
            if type(found) in PLAIN:
                return found
        return error_field(error, name)

    return find


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


def _comparison(node: nodes.Compare) -> Render:
    if len(node.ops) != 1:
        raise NotPlain
    left, right = closure_of(node.expr), closure_of(node.ops[0].expr)
    compare = _COMPARISONS[node.ops[0].op]
    if node.ops[0].op in SEARCHES:
        if _is_written_out(node.ops[0].expr):
            return lambda names: compare(left(names), right(names))
        return lambda names: compare(left(names), searched(right(names)))
    if isinstance(node.expr, nodes.Const) or isinstance(node.ops[0].expr, nodes.Const):
        # What is written in the template is short, and nothing is compared beyond its length.
        return lambda names: compare(left(names), right(names))
    return lambda names: compare(left(names), charge(right(names)))


def _is_written_out(node: nodes.Node) -> bool:
    parts = node.items if isinstance(node, nodes.List | nodes.Tuple) else [node]
    return all(isinstance(part, nodes.Const) for part in parts)


def _both(node: nodes.And) -> Render:
    whole = _whole_both(node)
    return lambda names: alone(whole(names))


def _whole_both(node: nodes.And) -> Render:
    left, right = whole_of(node.left), whole_of(node.right)
    return lambda names: ran(left(names)) and ran(right(names))


def _either(node: nodes.Or) -> Render:
    whole = _whole_either(node)
    return lambda names: alone(whole(names))


def _whole_either(node: nodes.Or) -> Render:
    left, right = whole_of(node.left), whole_of(node.right)
    return lambda names: ran(left(names)) or ran(right(names))


def _negation(node: nodes.Not) -> Render:
    value = whole_of(node.node)
    return lambda names: not value(names)


def _condition(node: nodes.CondExpr) -> Render:
    whole = _whole_condition(node)
    return lambda names: alone(whole(names))


def _whole_condition(node: nodes.CondExpr) -> Render:
    if node.expr2 is None:
        raise NotPlain
    test, first, second = whole_of(node.test), whole_of(node.expr1), whole_of(node.expr2)
    return lambda names: first(names) if test(names) else second(names)


def _operation(node: nodes.BinExpr) -> Render:
    left, right, symbol = closure_of(node.left), closure_of(node.right), node.operator
    return lambda names: arithmetic(symbol, left(names), right(names))


def _list(node: nodes.List) -> Render:
    parts = [closure_of(part) for part in node.items]
    return lambda names: [held(part(names)) for part in parts]


def _mapping(node: nodes.Dict) -> Render:
    pairs = [(closure_of(pair.key), closure_of(pair.value)) for pair in node.items]
    return lambda names: {held(key(names)): held(value(names)) for key, value in pairs}


def _joined(node: nodes.Concat) -> Render:
    parts = [closure_of(part) for part in node.nodes]

    def join(names: Mapping[str, Any]) -> str:
        made, size = [], 0
        for part in parts:
            made.append(text := str(charge(part(names))))
            size += len(text)
            if size > OUTPUT_MAX:
                raise OverflowError(TOO_LARGE)
        return "".join(made)

    return join


_CLOSURES: dict[type[nodes.Node], Callable[[Any], Render]] = {
    nodes.Const: _constant,
    nodes.TemplateData: _constant,
    nodes.Name: _name,
    nodes.Getattr: _path,
    nodes.Getitem: _path,
    nodes.Filter: _called,
    nodes.Test: _called,
    nodes.Compare: _comparison,
    nodes.And: _both,
    nodes.Or: _either,
    nodes.Not: _negation,
    nodes.CondExpr: _condition,
    nodes.Add: _operation,
    nodes.Sub: _operation,
    nodes.Mul: _operation,
    nodes.Div: _operation,
    nodes.FloorDiv: _operation,
    nodes.Mod: _operation,
    nodes.Pow: _operation,
    nodes.Concat: _joined,
    nodes.List: _list,
    nodes.Dict: _mapping,
}

_WHOLES: dict[type[nodes.Node], Callable[[Any], Render]] = {
    nodes.Name: _whole_name,
    nodes.And: _whole_both,
    nodes.Or: _whole_either,
    nodes.CondExpr: _whole_condition,
    nodes.Filter: _default,
}
"""Those expressions that may come to a result with its names."""
