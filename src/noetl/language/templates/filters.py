"""What templates can do to values: values go in, values come out, bounded in size and never changed in place."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from jinja2 import Undefined
from jinja2.filters import do_format, do_indent

from noetl.language.templates.bounds.meter import counted
from noetl.language.templates.bounds.operators import refuse_spread, refuse_wide_percent
from noetl.language.templates.bounds.weights import bounded_width, charge, charge_items
from noetl.language.templates.result_view import View

PLAIN = frozenset({str, int, float, bool, type(None), dict, list})


def resolved(value: Any) -> Any:
    """Return a value, fetching it first where it stands for something held elsewhere."""
    if type(value) in PLAIN:
        return value
    fetch = getattr(type(value), "__noetl_value__", None)
    return value if fetch is None else fetch(value)


def held(value: Any) -> Any:
    """Return a value as a part of a list or mapping that a template makes, which is paid for with all that is in it."""
    return charge(presentable(value))


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
        return [presentable(item) for item in counted(value)]
    if isinstance(value, type({}.keys()) | type({}.values()) | type({}.items())):
        return list(charge_items(value))
    if callable(value):
        raise TypeError(f"{getattr(value, '__name__', 'this')!r} is a method: call it with ()")
    return value


def replace(value: Any, old: str, new: str, count: int = -1) -> str:
    """Return text with one part of it replaced by another."""
    text = str(value)
    refuse_spread(text, old, new)
    return text.replace(str(old), str(new), -1 if count is None else count)


def center(value: Any, width: int = 80) -> str:
    """Return text in the middle of a field of this width."""
    return str(value).center(bounded_width(width))


def indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    """Return text with its lines moved to the right."""
    return str(do_indent(str(value), width, first, blank))


def formatted(value: Any, *args: Any, **kwargs: Any) -> str:
    """Return text with its `%` fields filled in."""
    text = str(value)
    refuse_wide_percent(text, args or kwargs)
    return str(do_format(text, *args, **kwargs))


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
