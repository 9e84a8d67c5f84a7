"""Reads YAML: text goes in, a tree with places comes out, with every problem found.

Tags are refused, anchors and merge keys are followed, and depth and size are limited. Plain scalars follow the core
schema of YAML 1.2, so dates stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml import events as ev

from noetl.language.grammar.problems import Problems, TooManyProblems
from noetl.language.grammar.tree import Node
from noetl.language.grammar.yaml_errors import TEMPLATE, told
from noetl.language.playbook.model import NOWHERE, Place
from noetl.model.canonical import SAFE_INTEGER

MAX_CHARACTERS: Final = 1_000_000
MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
"""Values in a document, with every anchor counted as often as it is used."""

_QUOTE_IT: Final = "put it in quotes"


class _StopReading(Exception):
    """The document cannot be read any further; the problem is noted."""


def read(text: str, problems: Problems, what: str = "playbook") -> Node | None:
    """Read one document; None when it cannot be read at all. `what` is what people call it."""
    if len(text) > MAX_CHARACTERS:
        problems.error(
            "too_large",
            f"the {what} has {len(text)} characters, and {MAX_CHARACTERS} are allowed",
            NOWHERE,
            f"move data out of the {what}",
        )
        return None
    try:
        return _Composer(YAML(typ="safe", pure=True).parse(text), problems, what).document()
    except _StopReading:
        return None
    except TooManyProblems:
        raise
    except Exception as error:
        # The reader trips over some malformed escapes, directives and control characters with errors of any type.
        wrong = told(error, text)
        place = Place(wrong.line, wrong.column)
        problems.error("yaml_invalid", f"this is not valid YAML: {wrong.message}", place, wrong.hint)
    return None


class _Composer:
    def __init__(self, events: Iterator[Any], problems: Problems, what: str) -> None:
        self._events = events
        self._problems = problems
        self._what = what
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        """Each with the number of values in it and how deep it goes."""
        self._count = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, ev.DocumentStartEvent):
                if root is not None:
                    said = f"a file holds one {self._what}"
                    self._stop("several_documents", said, _place(event), "use one file for each")
                root = self._node(next(self._events), 0)
        if root is None:
            self._stop("empty", "there is nothing in this file", NOWHERE, "start with apiVersion: noetl.io/v2")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        place = _place(event)
        before = self._count
        if isinstance(event, ev.AliasEvent):
            return self._alias(event.anchor, place, depth)
        self._add(1, place)
        self._bound(depth, place)
        if event.tag is not None:
            self._problems.error("yaml_tag", "tags are not allowed", place, "remove the word that starts with !")
        if isinstance(event, ev.MappingStartEvent):
            node = self._mapping(place, depth + 1)
        elif isinstance(event, ev.SequenceStartEvent):
            node = Node([self._node(one, depth + 1) for one in self._until(ev.SequenceEndEvent)], place)
        else:
            node = self._scalar(event, place)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._count - before, _height(node))
        return node

    def _alias(self, anchor: str, place: Place, depth: int) -> Node:
        if anchor not in self._anchors:
            hint = "a value that starts with * must stand in quotes"
            self._problems.error("yaml_alias", "this alias refers to no anchor before it", place, hint)
            return Node(None, place)
        node, size, height = self._anchors[anchor]
        self._add(size, place)
        self._bound(depth + height, place)
        return node

    def _mapping(self, place: Place, depth: int) -> Node:
        value: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        merged: list[Node] = []
        for event in self._until(ev.MappingEndEvent):
            at = _place(event)
            key = self._key(event, at, depth)
            node = self._node(next(self._events), depth)
            if node.value is None and node.place.line != at.line:
                node = Node(None, at)  # nothing was written, so it stands where its key does
            if key is None:
                continue
            if key == "<<" and event.style is None:
                merged += self._merged(node, at)
            elif key in value:
                first = f"remove this one or the one in line {keys[key].line}"
                self._problems.error("duplicate_key", f"{key} is given twice", at, first)
            else:
                value[key], keys[key] = node, at
        for other in merged:
            for key, node in other.mapping.items():
                if key not in value:
                    value[key], keys[key] = node, other.key_place(key)
        return Node(value, place, keys)

    def _key(self, event: Any, at: Place, depth: int) -> str | None:
        if isinstance(event, ev.ScalarEvent):
            # Keys are text in JSON, so `200:` is the key "200".
            return self._text(str(event.value), at)
        self._node(event, depth)
        if isinstance(event, ev.MappingStartEvent):
            self._problems.error("yaml_key", "outside of quotes {{ begins a mapping within a mapping", at, TEMPLATE)
        else:
            self._problems.error("yaml_key", "a key must be a single word or text", at, _QUOTE_IT)
        return None

    def _merged(self, node: Node, at: Place) -> list[Node]:
        parts = node.items if isinstance(node.value, list) else [node]
        if not all(isinstance(part.value, dict) for part in parts):
            self._problems.error("yaml_merge", "only mappings can be merged", at, "let << refer to a mapping")
            return []
        return parts

    def _scalar(self, event: Any, place: Place) -> Node:
        text = self._text(str(event.value), place)
        if event.style is not None or not event.implicit[0]:
            return Node(text, place, is_literal=event.style == "|")
        try:
            return Node(resolve(text), place)
        except CannotCarryError as error:
            self._problems.error("yaml_number", f"this {error}", place, _QUOTE_IT)
            return Node(text, place)

    def _text(self, text: str, place: Place) -> str:
        if "\0" in text or (not text.isprintable() and any("\ud800" <= one <= "\udfff" for one in text)):
            self._problems.error("yaml_character", "this holds a character that cannot be stored", place, "remove it")
            return ""
        return text

    def _until(self, end: type[Any]) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _bound(self, depth: int, place: Place) -> None:
        if depth >= MAX_DEPTH:
            self._stop("too_deep", f"this is nested deeper than {MAX_DEPTH} levels", place, "flatten it")

    def _add(self, count: int, place: Place) -> None:
        self._count += count
        if self._count > MAX_NODES:
            hint = f"move data out of the {self._what}"
            said = f"the {self._what} holds more than {MAX_NODES} values, anchors counted each time"
            self._stop("too_large", said, place, hint)

    def _stop(self, code: str, message: str, place: Place, suggestion: str) -> NoReturn:
        self._problems.error(code, message, place, suggestion)
        raise _StopReading


def _height(node: Node) -> int:
    return max((1 + _height(inner) for inner in (*node.items, *node.mapping.values())), default=0)


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+")
_PREFIXED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST: Final = 64


class CannotCarryError(Exception):
    """A scalar that JSON has no exact value for; the message says why."""


def resolve(text: str) -> str | int | float | bool | None:
    """Return the value of a scalar written without quotes."""
    if text in _NULLS:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if _DECIMAL.fullmatch(text):
        return _whole(text, 10)
    if _PREFIXED.fullmatch(text):
        return _whole(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise CannotCarryError("is too large a number")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise CannotCarryError("is a number that JSON does not have")
    return text


def _whole(text: str, base: int) -> int:
    if len(text) > _LONGEST or abs(number := int(text, base)) > SAFE_INTEGER:
        raise CannotCarryError("is a whole number beyond 2^53 - 1, which would be rounded")
    return number
