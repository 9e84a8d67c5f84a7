"""Jinja's filters and tests, each with its price: a table of functions goes in, the same with bounds comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import wraps
from typing import Any, Final

from jinja2.utils import _PassArg

from noetl.language.templates.bounds.meter import LOOK_UP, counted, spend
from noetl.language.templates.bounds.operators import joined_size
from noetl.language.templates.bounds.weights import (
    bounded,
    bounded_size,
    bounded_width,
    charge,
    charge_items,
    text_size,
    weigh,
)

Filter = Callable[..., Any]

_FREE: Final = frozenset({
    "abs", "attr", "count", "d", "default", "first", "float", "int", "items", "last", "length", "bounded", "presentable",
    "boolean", "callable", "defined", "divisibleby", "escaped", "even", "false", "filter", "integer", "iterable",
    "mapping", "none", "number", "odd", "sameas", "sequence", "string", "test", "true", "undefined",
})  # fmt: skip
"""Filters, and tests but for `string`, whose price does not depend on the size of what they are asked."""
_ITEM_BY_ITEM: Final = frozenset({"map", "select", "reject", "selectattr", "rejectattr", "batch", "slice"})
_SORTING: Final = frozenset({"sort", "dictsort", "groupby", "unique", "min", "max"})
_SLOW: Final = frozenset({"striptags", "urlize", "wordwrap", "pprint", "title", "wordcount", "xmlattr"})
"""Filters that go over a text again and again: they pay for the square of its length, in pages."""
_PAGE: Final = 4096
_DIGITS_MAX: Final = 400
"""More than any number with a point has."""


def metered(functions: Mapping[str, Filter], *, are_tests: bool = False) -> dict[str, Filter]:
    """Return filters or tests by name, each of which pays for what it does."""
    return {
        name: function if name in _FREE and (are_tests or name != "string") else _metered(name, function)
        for name, function in functions.items()
    }


def _metered(name: str, function: Filter) -> Filter:
    # What Jinja gives before the value: its context, the way it evaluates, or the environment.
    first = 0 if _PassArg.from_obj(function) is None else 1
    pay = _price(name)

    @wraps(function)
    def paid(*args: Any, **kwargs: Any) -> Any:
        spend(LOOK_UP)
        value, rest = args[first], args[first + 1 :]
        value = pay(value, rest, kwargs)
        return bounded(function(*args[:first], value, *rest, **kwargs))

    return paid


def _price(name: str) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]:
    if name in _ITEM_BY_ITEM:
        return _by_item
    if name in _SORTING:
        return _by_order
    if name in _SLOW:
        return _by_square
    return _OWN.get(name, _by_size)


def _by_size(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for argument in (*args, *kwargs.values()):
        charge(argument)
    return charge(_kept(value))


def _by_item(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for argument in (*args, *kwargs.values()):
        charge(argument)
        if isinstance(argument, int):
            # The number of lists that `batch` and `slice` fill up.
            bounded_size(argument)
            spend(max(argument, 0))
    if isinstance(value, str):
        spend(len(value))
        return value
    # Asked for one after another, and by something that may leave all of them out.
    return counted(value, LOOK_UP) if isinstance(value, Iterable) else value


def _by_order(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = _by_size(value, args, kwargs)
    if isinstance(value, Sized):
        spend(len(value) * len(value).bit_length())
    return value


def _by_square(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = _by_size(value, args, kwargs)
    size = text_size(value)
    spend(size + size * size // _PAGE)
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, str):
            bounded_size(size * len(argument))  # such as what `wordwrap` puts between lines
    return value


def _list(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(value, str):
        spend(len(value))
        return value
    return counted(value) if isinstance(value, Iterator) else charge_items(value)


def _sum(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = _by_size(value, args, kwargs)
    start = kwargs.get("start", args[1] if len(args) > 1 else 0)
    if isinstance(value, Sized) and not isinstance(start, int | float):
        # Each list is added to a copy of all before it.
        spend(weigh(value) * len(value))
    return value


def _join(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parts = list(counted(value))
    separator = kwargs.get("d", args[0] if args else "")
    # With an attribute, that of each part is joined, which is no longer than the part.
    joined_size(separator, parts)
    return parts


def _round(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    precision = kwargs.get("precision", args[0] if args else 0)
    if isinstance(precision, int) and abs(precision) > _DIGITS_MAX:
        raise OverflowError(f"the precision is larger than {_DIGITS_MAX} digits")
    return value


def _indent(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    width = kwargs.get("width", args[0] if args else 4)
    size = len(width) if isinstance(width, str) else bounded_width(width)
    text = str(charge(value))
    bounded_size(len(text) + (text.count("\n") + 1) * max(size, 0))
    return value


def _tojson(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    indent = kwargs.get("indent", args[0] if args else None)
    if isinstance(indent, int):
        if indent > 100:
            raise OverflowError("the indentation is larger than 100")
        spend(weigh(value) * indent)
    return charge(value)


def _alike(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for argument in args:
        charge_items(argument) if isinstance(argument, dict) else charge(argument)
    return charge(value)


_OWN: Final[dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]]] = {
    "list": _list,
    "sum": _sum,
    "join": _join,
    "round": _round,
    "indent": _indent,
    "tojson": _tojson,
    "in": _alike,
}


def _kept(value: Any) -> Any:
    """Return a value that can be looked at twice; what comes item by item is paid for and gathered."""
    return list(counted(value)) if isinstance(value, Iterator) else value
