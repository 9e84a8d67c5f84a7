"""What a template uses: text goes in, dotted names and filters come out. Filters that NoETL lacks are reported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, nodes

from noetl.language.grammar.problems import Problems, nearest, slip
from noetl.language.grammar.tree import Node
from noetl.language.playbook.model import Place
from noetl.language.templates.bounds.cache import KeptByLength
from noetl.language.templates.template import NO_CLOCK, compiled, is_clock

Path = tuple[str | int, ...]

SCOPES = frozenset({
    "workload", "ctx", "iter", "step", "input", "output", "event", "execution_id", "catalog_id", "job", "keychain",
    "frame", "loop", "results", "_prev", "_task", "_attempt", "fanin", "__frame_max_rows",
})  # fmt: skip
"""Names every playbook has."""
OF_WORKLOAD = frozenset({"workload", "execution_id", "catalog_id", "job", "path", "payload", "now"})
"""Names that the defaults of a workload have besides its own keys: they are rendered before the first step."""
_ENVIRONMENT = Environment(autoescape=True)  # it parses only: nothing is rendered with it
_DEFINED = frozenset({"defined", "undefined"})
_DEFAULT = frozenset({"default", "d"})


@dataclass(frozen=True, slots=True)
class Uses:
    """Every dotted name in a template, those it is careful about, with `default` or `is defined`, and its filters."""

    paths: frozenset[Path]
    guarded: frozenset[Path]
    filters: frozenset[str]

    def is_guarded(self, path: Path) -> bool:
        """Tell whether the template goes on if this is missing."""
        return any(guard[: len(path)] == path for guard in self.guarded)


_KEPT: Final[KeptByLength[Uses]] = KeptByLength(200_000)


def uses_of(source: str) -> Uses:
    """Return what a template uses; `TemplateFailed` if it cannot be read."""
    found = _KEPT.get(source)
    return _KEPT.keep(source, _read(source), len(source)) if found is None else found


def _read(source: str) -> Uses:
    template = compiled(source)
    guarded: set[Path] = set()
    tree = _ENVIRONMENT.parse(source)
    filters: set[str] = set()
    for test in tree.find_all((nodes.Test, nodes.Filter)):
        if isinstance(test, nodes.Filter):
            filters.add(test.name)
        if isinstance(test, nodes.Test | nodes.Filter) and test.name in _DEFINED | _DEFAULT and test.node is not None:
            guarded.add(_path(test.node))
    return Uses(frozenset(template.paths), frozenset(guarded - {()}), frozenset(filters))


def instead_of(name: str, known: Iterable[str]) -> str:
    """Propose what to write in place of a name that nobody gives."""
    if is_clock(name):
        return NO_CLOCK
    close = nearest(name, known)
    return f"did you mean {close}?" if close else "declare it under workload, or give it as input"


def may_be_given(name: str, known: Iterable[str], source: str) -> bool:
    """Tell whether a request may bring a value of a name that the playbook does not have.

    A misspelt name, a clock and a function of a template are nothing that a request brings.
    """
    is_called = re.search(rf"\b{name}\s*\(", source) is not None
    return not is_called and not is_clock(name) and slip(name, known) is None


def place_in(node: Node, line: int) -> Place:
    """Return where a line of a template stands in the file, as far as the way it was written tells."""
    return Place(node.place.line + line, 1) if node.is_literal else node.place


def line_of(source: str, word: str) -> int:
    """Return the first line of a template with a word in it, counted from 1."""
    at = source.find(word)
    return 1 if at < 0 else source.count("\n", 0, at) + 1


def _path(node: nodes.Node) -> Path:
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        return (*start, node.attr) if (start := _path(node.node)) else ()
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return (*start, node.arg.value) if (start := _path(node.node)) else ()
    return ()


_INSTEAD_OF_FILTERS: Final = {
    "encrypt_secret": "keep the secret as a credential, and name it in auth or read it from the keychain",
}


def check_filters(text: Node, uses: Uses, problems: Problems) -> None:
    """Note filters that are not available, and what to write instead."""
    for name in sorted(uses.filters & _INSTEAD_OF_FILTERS.keys()):
        at = place_in(text, line_of(str(text.value), name))
        problems.error("filter_unavailable", f"{name} is not available in templates", at, _INSTEAD_OF_FILTERS[name])
