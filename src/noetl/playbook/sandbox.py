"""The sandbox templates run in: no clock, no randomness, no files and no way to change what they are given.

A mapping's entry comes before its methods, so that `x.items` is the entry `items` where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import missing

from noetl.playbook import filters
from noetl.playbook.filters import (
    OPERATORS,
    arithmetic,
    bounded,
    bounded_format,
    bounded_width,
    refuse_spread,
    resolved,
)
from noetl.playbook.reference_fields import reference_field
from noetl.playbook.result_fields import repeated_field
from noetl.playbook.views import NOWHERE, View, alone

_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})


class Absent(StrictUndefined):
    """A name that is not there. Its error says the name alone; where it was asked for is the template's to say."""

    made = 0
    """How many there have been: a rendering that made none need not be searched for one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Absent.made += 1

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


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with NoETL's lookups, filters and bounds."""

    context_class = _Names
    intercepted_binops = frozenset(OPERATORS)

    def __init__(self) -> None:
        super().__init__(
            undefined=Absent, autoescape=False, keep_trailing_newline=True, finalize=filters.presentable, cache_size=0
        )
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "joiner", "cycler")}
        self.globals["range"] = safe_range
        del self.filters["random"]
        self.filters |= {
            "b64decode": filters.b64decode,
            "b64encode": filters.b64encode,
            "bounded": filters.bounded,
            "center": filters.center,
            "encrypt_secret": filters.encrypt_secret,
            "format": filters.formatted,
            "indent": filters.indent,
            "presentable": filters.presentable,
            "replace": filters.replace,
            "tojson": filters.tojson,
        }

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
        """Call something within bounds: no method of text makes more of it than a template may give."""
        name = getattr(__obj, "__name__", "")
        if name in _PADDING:
            bounded_width(*(argument for argument in (*args, *kwargs.values()) if isinstance(argument, int)))
        elif name in {"format", "format_map"}:
            bounded_format(getattr(getattr(__obj, "__wrapped__", __obj), "__self__", ""))
        elif name == "replace":
            refuse_spread(getattr(__obj, "__self__", None), *args)
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


SANDBOX.filters |= {
    "alone": alone,
    "error_field": error_field,
    "ran": ran,
    "reached": reached,
    "reached_item": reached_item,
}
