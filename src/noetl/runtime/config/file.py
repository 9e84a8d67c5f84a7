"""Reads settings from a YAML file: text in, values and their places out, with every problem that was met.

Values stay the text that was written; their types come from the settings' declarations, so `007` stays `007`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from noetl.language.grammar.yaml_errors import told
from noetl.runtime.config.problems import Origin, Path, Problem, problem, suggest
from noetl.runtime.config.schema import Leaf, Named, children
from noetl.runtime.settings.declaration import Settings

Given = dict[Path, tuple[Any, Origin]]
"""Values by path with their origin; a section under a chosen name stands as an empty mapping."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_]\w*)(?P<fallback>:-[^}]*)?\})?")
_NULL = "tag:yaml.org,2002:null"


class _CannotExpandError(Exception):
    """A `${…}` that cannot be expanded; the message says why."""


def read_file(file: FilePath, environ: Mapping[str, str]) -> tuple[Given, list[Problem]]:
    """Read the settings in a file, with `${NAME}` taken from the environment."""
    whole = Origin(str(file))
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        return {}, [problem((), f"cannot be read: {error.strerror}", whole, "name a file that exists")]
    except UnicodeDecodeError as error:
        return {}, [problem((), f"is not UTF-8 text: byte {error.start} cannot be decoded", whole)]
    try:
        root = _compose(text)
    except YAMLError as error:
        wrong = told(error, text)
        place = Origin(str(file), wrong.line, wrong.column)
        return {}, [problem((), f"is not valid YAML: {wrong.message}", place, wrong.hint)]
    reader = _Reader(str(file), environ)
    if root is not None:
        reader.section(root, Settings, ())
    return reader.given, reader.problems


class _Reader:
    def __init__(self, source: str, environ: Mapping[str, str]) -> None:
        self.given: Given = {}
        self.problems: list[Problem] = []
        self._source = source
        self._environ = environ

    def section(self, node: Node, section: type[BaseModel], path: Path) -> None:
        known = children(section)
        for key, origin, value in self._items(node, path):
            below = (*path, key)
            match known.get(key):
                case None:
                    self.problems.append(problem(below, "is not a setting", origin, suggest(key, known)))
                case Leaf() as leaf:
                    self._leaf(value, leaf, below)
                case Named(section=inner):
                    for name, place, entry in self._items(value, below):
                        self.given[*below, name] = ({}, place)
                        self.section(entry, inner, (*below, name))
                case inner:
                    self.section(value, inner, below)

    def _items(self, node: Node, path: Path) -> Iterator[tuple[str, Origin, Node]]:
        if node.tag == _NULL:
            return
        if not isinstance(node, MappingNode):
            self.problems.append(problem(path, "must be a mapping of settings", self._origin(node)))
            return
        seen: dict[str, Origin] = {}
        for key, value in node.value:
            origin = self._origin(key)
            if not isinstance(key, ScalarNode) or key.value == "<<":
                self.problems.append(problem(path, "may hold plain keys only", origin, "write the settings out"))
            elif key.value in seen:
                first = f"remove this one or the one in line {seen[key.value].line}"
                self.problems.append(problem((*path, key.value), "is given twice", origin, first))
            else:
                seen[key.value] = origin
                yield key.value, origin, value

    def _leaf(self, node: Node, leaf: Leaf, path: Path) -> None:
        parts = node.value if leaf.many and isinstance(node, SequenceNode) else [node]
        names: list[str] = []
        texts: list[str | None] = []
        for part in parts:
            if not isinstance(part, ScalarNode):
                wanted = "a list of single values" if leaf.many else "a single value"
                self.problems.append(problem(path, f"must be {wanted}", self._origin(part)))
                return
            try:
                text = part.value if part.tag != _NULL else None
                texts.append(text and _expand(text, self._environ, names.append))
            except _CannotExpandError as error:
                hint = "set it, or write ${NAME:-default}; a literal ${ is written $${"
                self.problems.append(problem(path, str(error), self._origin(part), hint))
                return
        # A value made of references alone that comes out empty counts as not given, like an empty variable.
        if names and texts == [""]:
            return
        self.given[path] = (texts if leaf.many else texts[0], self._origin(node, tuple(names)))

    def _origin(self, node: Node, names: tuple[str, ...] = ()) -> Origin:
        return Origin(self._source, node.start_mark.line + 1, node.start_mark.column + 1, names)


def _compose(text: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    # An anchor used twice is legal YAML, and a library must not write warnings to the user's terminal.
    yaml.composer.warn_double_anchors = False
    root: Node | None = yaml.compose(text)
    return root


def _expand(text: str, environ: Mapping[str, str], used: Callable[[str], None]) -> str:
    def put(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, fallback = match["name"], match["fallback"]
        if name is None:
            raise _CannotExpandError("holds ${ without a name and a closing }")
        used(name)
        if fallback is not None:
            return environ.get(name) or fallback[2:]
        if name not in environ:
            raise _CannotExpandError(f"needs the environment variable {name}, which is not set")
        return environ[name]

    return _REFERENCE.sub(put, text)
