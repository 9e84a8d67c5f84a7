"""The language the grammar is written in: shapes that values have. Data only; matching and schemas are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value at all, with templates anywhere in it."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is not empty; `pattern` is a regular expression and `described` says in words what it asks for."""

    pattern: str | None = None
    described: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A template that comes to true or false."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `minimum` on, up to `maximum` if there is one."""

    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number from zero on; `positive` leaves zero out."""

    positive: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds as a number, or text such as 500ms, 30s, 5m, 2h, 1d; `longest` is in seconds."""

    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """Text with `{{ }}` in it."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose items have one shape."""

    item: Shape
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping under keys the user chooses."""

    value: Shape
    key: Text = Text()


@dataclass(frozen=True, slots=True)
class Either:
    """The first shape that fits the kind of value written (text, number, list, mapping)."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a record."""

    shape: Shape
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Fields that stand for one thing: at most one may be given, exactly one if required.

    `into` tells under which name each is handed on.
    """

    into: Mapping[str, str]
    required: bool = False


Extra = Literal["refused", "kept", "ignored"]


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys."""

    title: str
    fields: Mapping[str, Field]
    doc: str = ""
    extra: Extra = "refused"
    """What becomes of keys that are not known: an error, kept as data, or a warning that they have no effect."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Keys of old that are refused, with what to write."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """Keys that belong elsewhere, with the place they belong to."""
    alternatives: tuple[Alternatives, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskByKind:
    """A task, whose fields depend on its `kind`."""


Shape = (
    Anything
    | Text
    | Condition
    | Choice
    | Whole
    | Number
    | Flag
    | Duration
    | Template
    | ListOf
    | MapOf
    | Either
    | Record
    | TaskByKind
)


def templated(shape: Shape) -> Either:
    """A shape, or a template that comes to it."""
    return Either((shape, Template()))


ANYTHING = Anything()
TEXT = Text()
FLAG = Flag()
BINDINGS = MapOf(ANYTHING)
