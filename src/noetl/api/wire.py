"""Values to JSON and back.

An answer is encoded as the type that its route declares: a struct with the fields of that type alone, whatever else the
value has, ids (`Id64`) as decimal text, times as RFC 3339.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from noetl.errors import InputError
from noetl.model.event import time_text
from noetl.model.ids import ID_PATTERN, Id64
from noetl.model.locator import SCHEME, parse_locator

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

Id = Annotated[str, Meta(pattern=ID_PATTERN, description="A 64-bit id as decimal text.")]
NO_NUL = r"^[^\x00]*$"
"""PostgreSQL's text cannot hold a NUL character, and no caller means one."""
Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=NO_NUL)]
WorkerId = Annotated[str, Meta(min_length=1, max_length=1024, pattern=NO_NUL)]
"""A worker's name: its locator, which has room for every part of its place, or any other text."""
Text = Annotated[str, Meta(max_length=10_000, pattern=NO_NUL)]
ReadTokenText = Annotated[
    str, Meta(description="Sent as `Noetl-Read-Token` with a read, it makes that read wait until it sees this write.")
]
Point = Annotated[str, Meta(min_length=1, max_length=17_000, pattern=NO_NUL)]
"""A mark, a time or an event id."""
Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Attempt = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: a field nobody knows is refused, since it is probably misspelt."""


class OfWorker(Body, frozen=True, kw_only=True):
    """What a worker sends, under its name."""

    worker_id: WorkerId

    def __post_init__(self) -> None:
        """Refuse a name that looks like a locator and is none: it would stand in events."""
        if self.worker_id.startswith(SCHEME) and str(parse_locator(self.worker_id)) != self.worker_id:
            raise ValueError("the locator of the worker is not written in its one form")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller gets."""


def without_defaults(kind: type[V]) -> type[V]:
    """Return a struct whose fields are all required: an answer leaves none out, whatever defaults they have in code."""
    fields = [(one.name, one.type, msgspec.field(name=one.encode_name)) for one in msgspec.structs.fields(kind)]
    return msgspec.defstruct(kind.__name__, fields, frozen=True, kw_only=True)  # type: ignore[return-value]


def combined(kind: type[V], *sources: object, **own: Any) -> V:
    """Make an answer of several values: each field is given, or comes from the first value that has one of its name."""
    for name in kind.__struct_fields__:
        if name not in own:
            holder = next((one for one in sources if hasattr(one, name)), None)
            if holder is not None:
                own[name] = getattr(holder, name)
    return kind(**own)


def encode(value: Any, kind: Any = Any) -> bytes:
    """Return a value as the JSON of a declared type."""
    return msgspec.json.encode(_encoder(kind)(value))


@cache
def _encoder(kind: Any) -> Callable[[Any], Any]:
    """Return what makes plain data of a value of a type; a value of another type is encoded as its own."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind == Id64:
        return str
    if origin is Annotated:
        return _encoder(inner[0])
    if origin in (Union, UnionType):
        options = [option for option in inner if option is not NoneType]
        given = _encoder(options[0]) if len(options) == 1 else _plain
        return lambda value: None if value is None else given(value)
    if origin in (list, Sequence) or (origin is tuple and inner[1:] == (...,)):
        item = _encoder(inner[0])
        return lambda value: [item(one) for one in value]
    if origin is dict:
        entry = _encoder(inner[1])
        return lambda value: {name: entry(one) for name, one in value.items()}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return lambda value: _plain(value, kind)
    return _plain


def _plain(value: Any, kind: type = msgspec.Struct) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = _fields(kind if isinstance(value, kind) and kind is not msgspec.Struct else type(value))
        return {shown: plain(getattr(value, name)) for name, shown, plain in fields}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, datetime):
        return time_text(value)
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Callable[[Any], Any]], ...]:
    """Return the fields of a struct: their names in code and in JSON, and their encoders."""
    hints = get_type_hints(kind, include_extras=True)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple((name, shown, _encoder(hints[name])) for name, shown in names)


def decode(kind: type[T], data: bytes) -> T:
    """Read JSON that a caller sent; `InputError` says where it is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InputError(f"the body is not what is asked for: {problem}") from None


def convert(kind: type[T], values: dict[str, str], what: str) -> T:
    """Read values that came as text, such as those of a query."""
    if any("\x00" in text for pair in values.items() for text in pair):
        raise InputError(f"{what} holds a NUL character, which is no text")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise InputError(f"{what}: {problem}") from None


def no_nul(text: str, what: str) -> str:
    """Return a text, or refuse one that PostgreSQL cannot hold."""
    if "\x00" in text:
        raise InputError(f"{what} holds a NUL character, which is no text")
    return text
