"""Values to JSON and back. Ids are integers in code and decimal text in JSON, whose numbers are exact to 53 bits only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from noetl.errors import InputError
from noetl.model.event import ID_FIELDS, time_text

T = TypeVar("T")

ID_PATTERN = "^[1-9][0-9]{0,18}$"
Id = Annotated[str, Meta(pattern=ID_PATTERN, description="A 64-bit id as decimal text.")]
NO_NUL = r"^[^\x00]*$"
"""PostgreSQL's text cannot hold a NUL character, and no caller means one."""
Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=NO_NUL)]
Text = Annotated[str, Meta(max_length=10_000, pattern=NO_NUL)]
ReadTokenText = Annotated[
    str, Meta(description="Sent as `Noetl-Read-Token` with a read, it makes that read wait until it sees this write.")
]
Attempt = Annotated[int, Meta(ge=0, le=2**31 - 1)]

TEXT_IDS = ID_FIELDS | {"issued_event_id", "child_execution_id", "rerun_of"}
"""Fields that hold ids; the schemas of the API say so too."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: a field nobody knows is refused, since it is probably misspelt."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller gets."""


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    return msgspec.json.encode(plain(value))


def plain(value: Any) -> Any:
    """Return a value with the ids of its structs as text and times as RFC 3339; free data stay as they are."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {shown: _field(name, getattr(value, name)) for name, shown in names}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, datetime):
        return time_text(value)
    return value


def _field(name: str, value: Any) -> Any:
    return str(value) if name in TEXT_IDS and isinstance(value, int) else plain(value)


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
