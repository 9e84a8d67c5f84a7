"""Canonical JSON (RFC 8785): a JSON value goes in, the one byte sequence that stands for it comes out.

Equal values give equal bytes in any language, so digests of them can be compared. What JSON cannot carry exactly
(NaN, Infinity, integers beyond 2^53 - 1, lone surrogates, other types) is refused, never rounded or guessed.
"""

from __future__ import annotations

import hashlib
import math
import re
from types import NoneType
from typing import Any, Final

import orjson
from blake3 import blake3

MAX_DEPTH: Final = 200
"""Levels of nesting. A fixed bound, so that the same value is accepted or refused whoever calls from however deep."""

SAFE_INTEGER: Final = 2**53 - 1
_EXPONENT_FROM: Final = 1e21  # from here on floats are printed with an exponent

_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_LEAVES: Final = frozenset({str, int, bool, NoneType})
_ARRAYS: Final = frozenset({list, tuple})
_FOUR_BYTE_LEADS: Final = b"\xf0\xf1\xf2\xf3\xf4"
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_STEPS: Final = 12


class CanonicalObject(dict[str, Any]):
    """A mapping that is known to read back from JSON as itself, with its canonical text; it is never changed."""

    __slots__ = ("text",)
    text: str


def canonical_json(value: object) -> bytes:
    """Return the RFC 8785 bytes of a value, or raise TypeError or ValueError naming the place that has none."""
    return _canonical(value, exact=False)


def exact_json(value: object) -> bytes:
    """Return the RFC 8785 bytes of a value that reads back as itself.

    The standard prints a float such as 1e17 as bare digits, which come back as an integer too large for JSON; such
    floats are refused here.
    """
    return _canonical(value, exact=True)


def _canonical(value: object, *, exact: bool) -> bytes:
    try:
        prepared = _prepared_object(value, MAX_DEPTH) if type(value) is dict else _prepared(value, MAX_DEPTH)
        out = orjson.dumps(prepared, option=_OPTIONS)
        # orjson sorts keys by UTF-8 bytes, the standard by UTF-16 units; they differ only beyond U+FFFF.
        if out.isascii() or len(out.translate(None, _FOUR_BYTE_LEADS)) == len(out):
            return out
    except (TypeError, _Refused):
        pass  # the careful path below writes what is unusual, and says where it is what JSON cannot carry
    chunks: list[bytes] = []
    try:
        _write(value, chunks, MAX_DEPTH)
    except _Refused as refused:
        raise refused.kind(f"{refused.place()} {refused.reason}") from None
    if exact:
        _refuse_whole_floats(value)
    return b"".join(chunks)


def digest_of(value: object) -> str:
    """Return the BLAKE3 digest, in hex, of the canonical JSON of a value."""
    return blake3(canonical_json(value)).hexdigest()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 digest, in hex, of exactly these bytes."""
    return hashlib.sha256(data).hexdigest()


def _prepared(value: Any, depth: int) -> object:
    """Return the value with each float as finished text, since orjson lays numbers out its own way."""
    kind = type(value)
    if kind is dict:
        return _prepared_object(value, depth)
    if kind in _LEAVES:
        return value
    if kind is float:
        # Beyond, a whole number would read back as an integer: the careful path says whether it may.
        if not -SAFE_INTEGER <= value <= SAFE_INTEGER:
            raise _Refused(TypeError, "is not plain")
        return orjson.Fragment(_number(value))
    if not depth or kind not in _ARRAYS:
        raise _Refused(TypeError, "is not plain")
    if _LEAVES.issuperset(map(type, value)):
        return value
    return [item if type(item) in _LEAVES else _prepared(item, depth - 1) for item in value]


def _prepared_object(value: dict[str, object], depth: int) -> object:
    if not depth:
        raise _Refused(TypeError, "is not plain")
    copy: dict[str, object] | None = None
    leaves = _LEAVES
    for key, item in value.items():
        kind = type(item)
        # Most values are text, and identity is quicker to ask for than membership.
        if kind is not str and kind not in leaves:
            prepared = _prepared_object(item, depth - 1) if kind is dict else _prepared(item, depth - 1)  # type: ignore[arg-type]
            if prepared is not item:
                copy = value.copy() if copy is None else copy
                copy[key] = prepared
    return value if copy is None else copy


def _refuse_whole_floats(value: object) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _refuse_whole_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_whole_floats(item)
    elif isinstance(value, float) and SAFE_INTEGER < abs(value) < _EXPONENT_FROM and value.is_integer():
        raise ValueError(f"{value!r} is a float beyond ±(2^53 - 1) that reads back as an integer; write it as a string")


class _Refused(Exception):
    """A value without canonical JSON, and the steps that lead to it, innermost first."""

    def __init__(self, kind: type[TypeError] | type[ValueError], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.steps: list[str | int] = []

    def place(self) -> str:
        path = "$"
        for step in self.steps[: -_SHOWN_STEPS - 1 : -1]:
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                path += f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{step!a}]"
        return path + ("…" if len(self.steps) > _SHOWN_STEPS else "")


def _write(value: object, chunks: list[bytes], depth: int) -> None:
    """Append the canonical bytes of any value; subclasses of JSON's types count as what they extend."""
    if value is None:
        chunks.append(b"null")
    elif isinstance(value, str):
        chunks.append(_text(value))
    elif isinstance(value, bool):
        chunks.append(b"true" if value else b"false")
    elif isinstance(value, int):
        if not -SAFE_INTEGER <= value <= SAFE_INTEGER:
            raise _Refused(
                ValueError, "is an integer beyond ±(2^53 - 1), which JSON readers round; write it as a string"
            )
        chunks.append(int.__repr__(value).encode())
    elif isinstance(value, float):
        chunks.append(_number(value))
    elif isinstance(value, dict):
        _write_object(value, chunks, _deeper(depth))
    elif isinstance(value, list | tuple):
        _write_array(value, chunks, _deeper(depth))
    else:
        raise _Refused(TypeError, f"is of type {type(value).__name__}, which JSON does not have; convert it first")


def _deeper(depth: int) -> int:
    if not depth:
        raise _Refused(ValueError, f"is nested deeper than {MAX_DEPTH} levels, or contains itself")
    return depth - 1


def _write_array(value: list[object] | tuple[object, ...], chunks: list[bytes], depth: int) -> None:
    separator = b"["
    index = 0
    try:
        for index, item in enumerate(value):  # noqa: B007 - the handler below reads it
            chunks.append(separator)
            separator = b","
            _write(item, chunks, depth)
    except _Refused as refused:
        refused.steps.append(index)
        raise
    chunks.append(b"]" if value else b"[]")


def _write_object(value: dict[object, object], chunks: list[bytes], depth: int) -> None:
    separator = b"{"
    for key, item in sorted(value.items(), key=_utf16_units):
        assert isinstance(key, str)
        chunks += (separator, _text(key), b":")
        separator = b","
        try:
            _write(item, chunks, depth)
        except _Refused as refused:
            refused.steps.append(key)
            raise
    chunks.append(b"}" if value else b"{}")


def _utf16_units(pair: tuple[object, object]) -> bytes:
    key = pair[0]
    if not isinstance(key, str):
        raise _Refused(TypeError, f"has the key {key!r} of type {type(key).__name__}; keys must be strings")
    try:
        return key.encode("utf-16-be")
    except UnicodeEncodeError:
        raise _Refused(ValueError, f"has the key {key!a} with a lone surrogate, which is no character") from None


def _text(value: str) -> bytes:
    try:
        return orjson.dumps(value if type(value) is str else str.__str__(value))
    except TypeError:
        raise _Refused(ValueError, "holds a lone surrogate, which is no character") from None


def _number(value: float) -> bytes:
    """Format as ECMAScript does: Python's digits are the same shortest ones, only its layout differs."""
    if value == 0:
        return b"0"
    if not math.isfinite(value):
        raise _Refused(ValueError, f"is {float.__repr__(value)}, which JSON does not have; use null or a string")
    text = float.__repr__(value)
    if "e" not in text:
        return text.removesuffix(".0").encode()
    mantissa, _, exponent = text.partition("e")
    sign = "-" if value < 0 else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits, power = whole + fraction, int(exponent)
    if 0 < power < 21:
        return f"{sign}{digits:0<{power + 1}}".encode()
    if -7 < power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}".encode()
    return f"{sign}{mantissa.removeprefix('-')}e{power:+d}".encode()
