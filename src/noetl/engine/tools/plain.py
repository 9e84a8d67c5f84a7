"""Any Python value goes in, plain JSON values come out: what has no plain form is refused with its place, never guessed.

Needs the standard library alone and imports little of it, because the processes that run users' code load this file too.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from types import NoneType

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 200
"""Levels of nesting, as many as canonical JSON takes."""

SAFE_INTEGER = 2**53 - 1
_SHOWN_STEPS = 12
_INFINITY = float("inf")
_CONSTANTS = frozenset({bool, NoneType})
_TEXT = frozenset({str})


def plain(value: Any) -> Any:
    """Return the value in plain JSON values; one that is plain already comes back itself.

    Raises ValueError, naming the place, for what JSON cannot carry (NaN, lone surrogates, other types).
    """
    try:
        return _plain(value, MAX_DEPTH)
    except _Refused as refused:
        raise ValueError(f"{refused.place()} {refused.reason}") from None


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind in _CONSTANTS:
        return value
    if kind is int:
        return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)
    if kind is float:
        if -_INFINITY < value < _INFINITY:
            return value
        raise _Refused(f"is {value!r}, which JSON does not have; use None or a text")
    if not depth:
        raise _Refused(f"is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if kind is dict:
        return _mapping(value, depth - 1)
    if kind is list:
        return _sequence(value, depth - 1)
    return _plain(_converter(kind)(value), depth - 1)


def _mapping(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if not _TEXT.issuperset(map(type, value)) or not "".join(value).isascii():
        value = _with_text_keys(value)
    copy: dict[str, Any] | None = None
    name = None
    try:
        for name, item in value.items():
            new = _plain(item, depth)
            if new is not item:
                copy = value.copy() if copy is None else copy
                copy[name] = new
    except _Refused as refused:
        refused.steps.append(str(name))
        raise
    return value if copy is None else copy


def _with_text_keys(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(key) is str and _text(key) is not None for key in value):
        return value
    named: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key)
        if name in named:
            raise _Refused(f"has two keys that both read {name!r} as text")
        named[name] = item
    return named


def _sequence(value: list[Any], depth: int) -> list[Any]:
    copy: list[Any] | None = None
    index = 0
    try:
        for index, item in enumerate(value):
            new = _plain(item, depth)
            if new is not item:
                copy = value.copy() if copy is None else copy
                copy[index] = new
    except _Refused as refused:
        refused.steps.append(index)
        raise
    return value if copy is None else copy


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int | float):
        return repr(key) if type(key) in (int, float) else str(_converter(type(key))(key))
    try:
        text = _plain(key, 2)
    except _Refused:
        text = None
    if isinstance(text, str):
        return text
    raise _Refused(f"has the key {key!a:.80} of type {_name(type(key))}, which cannot be a text")


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Refused("holds a lone surrogate, which is no character") from None
    return value


def _duration(value: Any) -> str:
    """Write a timedelta as an ISO 8601 duration in days, hours, minutes and seconds."""
    if value.days < 0:
        return "-" + _duration(-value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    day = f"{value.days}D" if value.days else ""
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    clock += f"{seconds}{fraction}S" if seconds or fraction else ""
    return f"P{day}T{clock}" if clock else f"P{day}" if day else "PT0S"


def _struct(value: Any) -> dict[str, Any]:
    fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return {written: getattr(value, name) for name, written in fields}


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}


def _frame(value: Any) -> Any:
    # pandas writes what is missing as NaN, which here is no number but an absence.
    return value.astype(object).where(value.notna(), None).to_dict("records")


def _series(value: Any) -> Any:
    return value.astype(object).where(value.notna(), None).tolist()


def _numpy_time(value: Any) -> Any:
    return None if str(value) == "NaT" else str(value)


def _numpy_duration(value: Any) -> Any:
    return None if str(value) == "NaT" else value.astype("timedelta64[us]").item()


def _nothing(_: Any) -> None:
    return None


def _iso(value: Any) -> Any:
    return value.isoformat()


def _base64(value: Any) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


def _by(method: str) -> Callable[[Any], Any]:
    return lambda value: getattr(value, method)()


# Looked up by name along a type's bases, so that no module has to be imported to know its types.
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "enum.Enum": lambda value: value.value,
    "pandas._libs.tslibs.nattype._NaT": _nothing,
    "pandas._libs.missing.C_NAType": _nothing,
    "pandas.core.frame.DataFrame": _frame,
    "pandas.core.series.Series": _series,
    "pandas.core.indexes.base.Index": _by("tolist"),
    # pandas calls its types so from version 3 on.
    "pandas.DataFrame": _frame,
    "pandas.Series": _series,
    "pandas.Index": _by("tolist"),
    "numpy.datetime64": _numpy_time,
    "numpy.timedelta64": _numpy_duration,
    "numpy.generic": _by("item"),
    "numpy.ndarray": _by("tolist"),
    "pyarrow.lib.Scalar": _by("as_py"),
    "pyarrow.lib.Array": _by("to_pylist"),
    "pyarrow.lib.ChunkedArray": _by("to_pylist"),
    "pyarrow.lib.RecordBatch": _by("to_pylist"),
    "pyarrow.lib.Table": _by("to_pylist"),
    "pydantic.main.BaseModel": _by("model_dump"),
    "msgspec.Struct": _struct,
    "datetime.datetime": _iso,
    "datetime.date": _iso,
    "datetime.time": _iso,
    "datetime.timedelta": _duration,
    "decimal.Decimal": str,
    "uuid.UUID": str,
    "ipaddress._IPAddressBase": str,
    "pathlib.PurePath": str,
    "builtins.bytes": _base64,
    "builtins.bytearray": _base64,
    "builtins.memoryview": _base64,
    "builtins.tuple": list,
    "builtins.set": lambda value: sorted(value, key=repr),
    "builtins.frozenset": lambda value: sorted(value, key=repr),
    "builtins.str": str.__str__,
    "builtins.int": int.__int__,
    "builtins.float": float.__float__,
    "builtins.list": list,
    "builtins.dict": dict,
}

_known: dict[type, Callable[[Any], Any]] = {}


def _converter(kind: type) -> Callable[[Any], Any]:
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _find_converter(kind)
    return found


def _find_converter(kind: type) -> Callable[[Any], Any]:
    names = [_name(each) for each in kind.__mro__]
    if "enum.Enum" in names:  # an enumeration of texts or numbers has those types among its bases first
        return _CONVERTERS["enum.Enum"]
    for name in names:
        if name in _CONVERTERS:
            return _CONVERTERS[name]
    if hasattr(kind, "__dataclass_fields__"):
        return _fields
    if issubclass(kind, Mapping):
        return dict
    raise _Refused(f"is of type {_name(kind).removeprefix('builtins.')}, which has no plain form; convert it first")


def _name(kind: type) -> str:
    module = kind.__module__
    # Modules of newer versions sit one level deeper than where their types are known.
    return f"{'pathlib' if module.startswith('pathlib.') else module}.{kind.__qualname__}"


class _Refused(Exception):
    """A value without plain form, and the steps that lead to it, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = []

    def place(self) -> str:
        path = "$"
        for step in self.steps[: -_SHOWN_STEPS - 1 : -1]:
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                path += f".{step}" if step.isidentifier() else f"[{step!a}]"
        return path + ("…" if len(self.steps) > _SHOWN_STEPS else "")
