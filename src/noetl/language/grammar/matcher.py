"""Matches a tree against the grammar: a node and a shape go in, problems come out. Never changes the tree."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from noetl.language.grammar.fit import described, fits, kind_of, refusal_of, seconds_of
from noetl.language.grammar.problems import Problems, nearest, slip, suggest
from noetl.language.grammar.shapes import (
    Anything,
    Choice,
    Condition,
    Duration,
    Either,
    ListOf,
    MapOf,
    Number,
    Record,
    Shape,
    TaskByKind,
    Template,
    Text,
    Whole,
)
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS, NOT_RUNNABLE, ONLY_READ, task_record
from noetl.language.playbook.model import Place
from noetl.language.templates.template import is_template

_LONGEST_SECONDS: Final = 316_224_000
"""Ten years: no time of a playbook is longer, and dates can be moved by it."""
_OTHER_DOCUMENTS: Final = {
    "Subscription": "write a playbook with a task of kind subscription, or a DAG with a source, and start it by a schedule",
    "Mcp": "register a credential of type mcp, and ask the server with a task of kind mcp",
    "Agent": "write a playbook, and run it with a task of kind agent",
    "Credential": "register it with noetl credentials",
}
"""Documents of older engines that are no playbooks, with what stands for them."""


class Matcher:
    """Holds one document against the grammar; `kinds` are further kinds of tasks, whose fields are not checked.

    What is missing in a task of the workbook that is `uncalled` is no error: nobody runs it.
    """

    def __init__(self, problems: Problems, kinds: Collection[str] = (), uncalled: Collection[str] = ()) -> None:
        self._problems = problems
        self._kinds = kinds
        self._uncalled = {f"workbook[{name}].tool" for name in uncalled}

    def match(self, node: Node, shape: Shape, name: str) -> None:
        """Note everything about a node that does not fit; `name` is what the node is called."""
        match shape:
            case Record():
                self._record(node, shape, name)
            case TaskByKind():
                self._task(node, name)
            case ListOf() if isinstance(node.value, list):
                if len(node.items) < shape.minimum:
                    self._wrong(name, "must not be empty", node.place)
                for index, item in enumerate(node.items):
                    self.match(item, shape.item, f"{name}[{_label(item) or index}]")
            case MapOf() if isinstance(node.value, dict):
                for key, value in node.mapping.items():
                    self._value(Node(key, node.key_place(key)), shape.key, f"the key {key} of {name}")
                    self.match(value, shape.value, f"{name}.{key}")
            case Either():
                self._either(node, shape, name)
            case _:
                self._value(node, shape, name)

    def _record(self, node: Node, record: Record, name: str) -> None:
        if not isinstance(node.value, dict):
            self._wrong(name or f"the {record.title}", f"must be a mapping, not {kind_of(node)}", node.place)
            return
        below = f"{name}." if name else ""
        for key, value in node.mapping.items():
            known = record.fields.get(key)
            if known is None:
                self._unknown(record, key, node.key_place(key), below)
            else:
                self.match(value, known.shape, below + key)
        for key, known in record.fields.items():
            if known.required and key not in node.mapping:
                self._missing(f"{below}{key} is needed", node.place, known.doc, name)
        self._alternatives(node, record, name)

    def _missing(self, said: str, place: Place, hint: str, name: str) -> None:
        tell = self._problems.warning if name in self._uncalled else self._problems.error
        tell("missing_field", said, place, hint)

    def _alternatives(self, node: Node, record: Record, name: str) -> None:
        for group in record.alternatives:
            given = [key for key in node.mapping if key in group.into]
            for key in given[1:]:
                said = f"{name} has both {given[0]} and {key}, which stand for one thing"
                self._problems.error("given_twice", said, node.key_place(key), "leave one of them out")
            if group.required and not given:
                names = list(group.into)
                hint = f"give one of {', '.join(names)}"
                self._missing(f"{name} needs {names[0]}", node.place, hint, name)

    def _unknown(self, record: Record, key: str, place: Place, below: str) -> None:
        # Where keys of the user's own are kept, only a word that is hardly anything else is taken for a misspelt one.
        close = slip(key, record.fields) if record.extra == "kept" else nearest(key, record.fields)
        if key in record.removed:
            self._problems.error(
                "removed_field", f"{below}{key} is not part of the language any more", place, record.removed[key]
            )
        elif record.extra == "refused" and key in record.homes:
            where = f"move it to {record.homes[key]}"
            self._problems.error("misplaced_field", f"{key} does not belong here, in the {record.title}", place, where)
        elif record.extra == "refused":
            known = suggest(key, record.fields)
            self._problems.error("unknown_field", f"{below}{key} is not a field of the {record.title}", place, known)
        elif close is not None:
            said = "is kept as it is, and means nothing" if record.extra == "kept" else "has no meaning here"
            self._problems.warning("likely_misspelt", f"{below}{key} {said}", place, f"did you mean {close}?")
        elif record.extra == "ignored":
            self._problems.warning("no_effect", f"{below}{key} has no effect", place, "remove it")

    def _task(self, node: Node, name: str) -> None:
        if not isinstance(node.value, dict):
            self._wrong(name, f"must be a mapping with a kind, not {kind_of(node)}", node.place)
            return
        kind = node.get("kind")
        if kind is None:
            self._problems.error("missing_field", f"{name}.kind is needed", node.place, f"one of {', '.join(KINDS)}")
        elif kind.text is None:
            self._wrong(f"{name}.kind", "must be text", kind.place)
        elif kind.text in NOT_RUNNABLE and kind.text not in self._kinds:
            said = f"tasks of kind {kind.text} are not supported by this build"
            self._problems.error("kind_not_supported", said, kind.place, NOT_RUNNABLE[kind.text])
        elif kind.text in ONLY_READ and kind.text not in self._kinds:
            said = f"tasks of kind {kind.text} cannot be run by this build"
            self._problems.warning("kind_not_supported", said, kind.place, "a run fails when it comes to this task")
            self._record(node, task_record(kind.text), name)
        elif kind.text not in KINDS and kind.text not in self._kinds:
            hint = suggest(kind.text, {*KINDS, *self._kinds})
            self._problems.error("unknown_kind", f"there is no kind of task {kind.text}", kind.place, hint)
        else:
            self._record(node, task_record(kind.text), name)

    def _either(self, node: Node, either: Either, name: str) -> None:
        if Template() in either.shapes and is_template(node.value):
            return
        words: list[str] = []
        for shape in either.shapes:
            if isinstance(shape, Choice) and node.value not in shape.words:
                words += shape.words  # another word may still be text of another shape
            elif fits(node, shape):
                self.match(node, shape, name)
                return
        self._wrong(name, refusal_of(node, either), node.place, _close(node.text or "", words))

    def _value(self, node: Node, shape: Shape, name: str) -> None:
        if isinstance(shape, Anything):
            return
        if not fits(node, shape):
            hint = "give it a value, or leave the key out" if node.value is None else None
            self._wrong(name, refusal_of(node, shape), node.place, hint)
            return
        match shape, node.value:
            case Text(pattern=str(pattern)), str(text) if not re.fullmatch(pattern, text):
                self._wrong(name, f"must be {shape.described}", node.place)
            case Text(), str(text) if not text.strip():
                self._wrong(name, "must not be empty", node.place)
            case Condition(), str(text) if not is_template(text) and text not in ("true", "false"):
                hint = 'write "{{ … }}" around the expression'
                self._problems.error("not_a_template", f"{name} is plain text, which is always true", node.place, hint)
            case Choice(words=words), str(text) if text not in words:
                hint = _OTHER_DOCUMENTS.get(text) if words == ("Playbook",) else None
                self._wrong(name, f"must be {' or '.join(words)}", node.place, hint or _close(text, words))
            case Whole(minimum=minimum), int(number) if number < minimum:
                self._wrong(name, f"must be at least {minimum}", node.place)
            case Whole(maximum=int(maximum)), int(number) if number > maximum:
                self._wrong(name, f"must be at most {maximum}", node.place)
            case Number(), int() | float() as number if number < 0 or (shape.positive and number == 0):
                self._wrong(name, f"must be {described(shape)}", node.place)
            case Duration(), int() | float() | str() as given:
                self._duration(name, shape, given, node.place)

    def _duration(self, name: str, shape: Duration, given: float | str, place: Place) -> None:
        seconds = seconds_of(given)
        if seconds <= 0:
            self._wrong(name, "must be more than 0", place)
        elif seconds > (shape.longest or _LONGEST_SECONDS):
            self._wrong(name, f"must be at most {shape.longest or _LONGEST_SECONDS} seconds", place)

    def _wrong(self, name: str, said: str, place: Place, suggestion: str | None = None) -> None:
        self._problems.error("wrong_value", f"{name} {said}", place, suggestion)


def _label(item: Node) -> str | None:
    name = item.get("step") or item.get("name")
    return None if name is None else name.text


def _close(word: str, known: Collection[str]) -> str | None:
    close = nearest(word, known)
    return None if close is None else f"did you mean {close}?"
