"""The sandbox templates run in: no clock, no randomness, no files and no way to change what they are given.

A mapping's entry comes before its methods, so that `x.items` is the entry `items` where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.compiler import CodeGenerator
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import missing

from noetl.language.templates import filters
from noetl.language.templates.bounds.meter import LOOK_UP, METER, TURN, spend
from noetl.language.templates.bounds.operators import OPERATORS, arithmetic, pay_for_call, searched
from noetl.language.templates.bounds.priced_filters import metered
from noetl.language.templates.bounds.weights import bounded, charge, charge_items
from noetl.language.templates.filters import resolved
from noetl.language.templates.result_fields import repeated_field
from noetl.language.templates.result_view import NOWHERE, View, alone, reference_field


class Absent(StrictUndefined):
    """A name that is not there. Its error says the name alone; where it was asked for is the template's to say."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        METER.absent += 1

    __repr__ = Undefined._fail_with_undefined_error  # a list's text would show it otherwise

    @property
    def _undefined_message(self) -> str:
        return self._undefined_hint or str(self._undefined_name)


class NotRun(Absent):
    """A step that has not run: false in a condition, and in any other use as absent as a name that nobody gives."""

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


def refuse_absent(value: Any) -> None:
    """Raise if a name that is not there hides anywhere in a value."""
    if isinstance(value, Undefined):
        str(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            refuse_absent(part)
    elif isinstance(value, list | tuple | set):
        for part in value:
            refuse_absent(part)


class _Names(Context):
    """A template's names, looked up where they are instead of being copied for each rendering."""

    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        try:
            return resolved(self.parent[key])
        except KeyError:
            return self.environment.globals.get(key, missing)


class _Evaluating(CodeGenerator):
    """Writes templates out with everything in them still to be evaluated, within a budget and not while they are read."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with NoETL's lookups, filters and bounds."""

    context_class = _Names
    code_generator_class = _Evaluating
    intercepted_binops = frozenset(OPERATORS)

    def __init__(self) -> None:
        super().__init__(
            undefined=Absent, autoescape=False, keep_trailing_newline=True, finalize=filters.held, cache_size=0,
            optimized=False,
        )  # fmt: skip
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "joiner", "cycler")}
        self.globals["range"] = safe_range
        del self.filters["random"]
        self.filters |= {
            "b64decode": filters.b64decode,
            "b64encode": filters.b64encode,
            "center": filters.center,
            "encrypt_secret": filters.encrypt_secret,
            "format": filters.formatted,
            "indent": filters.indent,
            "replace": filters.replace,
            "tojson": filters.tojson,
        }
        known: Any = self
        known.filters, known.tests = metered(known.filters), metered(known.tests, are_tests=True)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up `obj.attribute`: a mapping's entry first, then what the sandbox lets be read."""
        if isinstance(obj, View):
            found = obj.find(attribute)
            if found is not NOWHERE:
                return resolved(found)
            if attribute == "get":
                return obj.get
            obj = obj.value
        if isinstance(obj, Mapping):
            try:
                return resolved(obj[attribute])
            except (KeyError, TypeError):
                if (made := _made_field(obj, attribute)) is not None:
                    return made
        return resolved(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up `obj[argument]`."""
        spend(LOOK_UP)
        if isinstance(obj, View):
            found = obj.find(argument)
            if found is not NOWHERE:
                return resolved(found)
            obj = obj.value
        found = super().getitem(obj, argument)
        if isinstance(found, Undefined) and (made := _made_field(obj, argument)) is not None:
            return made
        return resolved(found)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply a binary operator within bounds."""
        return arithmetic(operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call something within bounds: no method makes more than a template may give."""
        args = pay_for_call(__obj, args, kwargs)
        return bounded(super().call(__context, __obj, *args, **kwargs))


def _made_field(value: Any, name: Any) -> Any:
    """Return a field that is recorded nowhere because others tell it."""
    made = reference_field(value, name)
    return repeated_field(value, name) if made is None else made


SANDBOX = Sandbox()


def reached(value: Any, key: str) -> Any:
    """Look up `value.key`; where the value is missing already, that is what is missing."""
    return value if isinstance(value, Undefined) else SANDBOX.getattr(value, key)


def reached_item(value: Any, key: Any) -> Any:
    """Look up `value[key]`; where the value is missing already, that is what is missing."""
    return value if isinstance(value, Undefined) else SANDBOX.getitem(value, key)


def ran(value: Any) -> Any:
    """Return a value as a condition takes it: a step that has not run is false."""
    return False if isinstance(value, NotRun) else value


def error_field(error: Any, name: str) -> Any:
    """Return a field that every error has: null where there is no error, or where it does not say."""
    if type(error) is dict:
        return resolved(error.get(name))
    return None if error is None else SANDBOX.getattr(error, name)


def turn(price: int) -> None:
    """Pay for a turn of a loop, or for a piece of text that is written once more."""
    # A template may name this filter, too, and pays for it at least as much as for any other.
    spend(price if type(price) is int and price > 0 else 1)


def turn_asked(value: Any) -> Any:
    """Pay for a turn that a loop's own condition may leave out, and return what the condition came to."""
    spend(TURN)
    return value


SANDBOX.filters |= {
    "alone": alone,
    "bounded": bounded,
    "charged": charge,
    "charged_items": charge_items,
    "error_field": error_field,
    "held": filters.held,
    "ran": ran,
    "reached": reached,
    "reached_item": reached_item,
    "searched": searched,
    "turn": turn,
    "turn_asked": turn_asked,
}
"""Filters that only `noetl.language.templates.tree_rewrites` and `noetl.language.templates.tree_rewrites` write into templates."""
