"""What templates can do to values: values go in, values come out, bounded in size and never changed in place."""

from __future__ import annotations

import base64
import binascii
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from jinja2 import Undefined
from jinja2.filters import do_format, do_indent

from noetl.playbook.views import View

OUTPUT_MAX = 16 * 1024 * 1024
_TOO_LARGE = f"the value is larger than {OUTPUT_MAX} characters or items"
_POWER_MAX_BITS = 65_536
PLAIN = frozenset({str, int, float, bool, type(None), dict, list})
_LONG_WIDTH = re.compile(
    r"%(?:\([^)]*\))?[-+ #0]*(?:\d{6,}|\*|\d*\.(?:\d{6,}|\*))"  # as in '%9999999d' % x
    r"|\{[^{}]*:[^{}]*(?:\d{6,}|\{)"  # as in '{:9999999}'.format(x)
)


def resolved(value: Any) -> Any:
    """Return a value, fetching it first where it stands for something held elsewhere."""
    if type(value) in PLAIN:
        return value
    fetch = getattr(type(value), "__noetl_value__", None)
    return value if fetch is None else fetch(value)


def presentable(value: Any) -> Any:
    """Return what an expression came to as a value of its own; a missing name or a bare method is an error."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, View):
        return presentable(value.value)
    if isinstance(value, Undefined):
        str(value)
    if isinstance(value, str):
        return "".join(value)  # a subclass of text that escapes what it is joined with becomes plain text
    if isinstance(value, tuple | range | Iterator):
        return [presentable(item) for item in value]
    if isinstance(value, type({}.keys()) | type({}.values()) | type({}.items())):
        return list(value)
    if callable(value):
        raise TypeError(f"{getattr(value, '__name__', 'this')!r} is a method: call it with ()")
    return value


def bounded(value: Any) -> Any:
    """Return a value unless it is too large to go on with."""
    if isinstance(value, str | bytes | list | tuple) and len(value) > OUTPUT_MAX:
        raise OverflowError(_TOO_LARGE)
    return value


def arithmetic(symbol: str, left: Any, right: Any) -> Any:
    """Apply a binary operator, refusing beforehand what would take up too much memory."""
    if symbol == "*":
        for text, count in ((left, right), (right, left)):
            if (
                isinstance(count, int)
                and isinstance(text, str | bytes | list | tuple)
                and len(text) * count > OUTPUT_MAX
            ):
                raise OverflowError(_TOO_LARGE)
    elif symbol == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * right > _POWER_MAX_BITS:
            raise OverflowError(f"the number is longer than {_POWER_MAX_BITS} bits")
    elif symbol == "%" and isinstance(left, str) and _LONG_WIDTH.search(left):
        raise OverflowError("the width in the format is too large or taken from a value")
    return bounded(OPERATORS[symbol](left, right))


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def refuse_spread(text: Any, old: Any = None, new: Any = None, *_: Any) -> None:
    """Raise if replacing one part of a text by another would make too much of it."""
    if not (isinstance(text, str) and isinstance(old, str) and isinstance(new, str)):
        return
    # Counting reads the whole text, so only when the worst case is too large.
    if len(text) * len(new) > OUTPUT_MAX and text.count(old) * len(new) > OUTPUT_MAX:
        raise OverflowError(_TOO_LARGE)


def replace(value: Any, old: str, new: str, count: int = -1) -> str:
    """Return text with one part of it replaced by another."""
    text = str(value)
    refuse_spread(text, old, new)
    return text.replace(str(old), str(new), -1 if count is None else count)


def bounded_width(*widths: Any) -> Any:
    """Return the first width unless one of them is too large."""
    for width in widths:
        if isinstance(width, int) and width > 100_000:
            raise OverflowError("the width is larger than 100000")
    return widths[0] if widths else None


def bounded_format(text: Any) -> Any:
    """Return a format's text unless it asks for a field of great width."""
    if isinstance(text, str) and _LONG_WIDTH.search(text):
        raise OverflowError("the width in the format is too large or taken from a value")
    return text


def center(value: Any, width: int = 80) -> str:
    """Return text in the middle of a field of this width."""
    return str(value).center(bounded_width(width))


def indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    """Return text with its lines moved to the right."""
    return str(do_indent(str(value), bounded_width(width), first, blank))


def formatted(value: Any, *args: Any, **kwargs: Any) -> str:
    """Return text with its `%` fields filled in."""
    return str(do_format(bounded_format(str(value)), *args, **kwargs))


def tojson(value: Any, indent: int | None = None) -> str:
    """Return a value as compact JSON text, with nothing escaped for HTML."""
    if indent is None:
        try:
            return orjson.dumps(value, default=_jsonable, option=orjson.OPT_NON_STR_KEYS).decode()
        except orjson.JSONEncodeError:
            pass  # whole numbers beyond 64 bits and the like: slower, but they have a JSON form
    separators = None if indent else (",", ":")
    return json.dumps(
        value, default=_jsonable, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False
    )


def _jsonable(value: Any) -> Any:
    plain = presentable(resolved(value))
    if plain is not value:
        return plain
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if type(value).__name__ == "Decimal":
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def b64encode(value: Any) -> str:
    """Return text (as UTF-8) or bytes in base 64."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return base64.b64encode(data).decode()


def b64decode(value: str | bytes) -> str:
    """Return the text that stands in base 64."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise TypeError("the value of b64decode is not base 64 of UTF-8 text") from None


def encrypt_secret(value: Any) -> str:
    """Say that secrets are not made in templates."""
    raise TypeError(
        "encrypt_secret is not available: keep the secret as a credential and name it in auth or the keychain"
    )
