"""Checks the defaults of a workload: secrets that would be recorded, keys that are templates, defaults that need themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Problems
from noetl.language.grammar.tree import Node
from noetl.language.playbook.parse import Parsed
from noetl.language.playbook.template_uses import OF_WORKLOAD, Path, line_of, place_in, uses_of
from noetl.language.templates.template import is_template

_OWN = frozenset({"path", "payload", "now"})
"""Names that keys of the workload come before."""
_Defaults = dict[Path, Node]
"""By their keys: whatever is no mapping and has a template in it."""


def check_workload(parsed: Parsed, problems: Problems) -> None:
    """Note what is wrong with the defaults of a workload."""
    workload = parsed.tree.get("workload")
    if workload is None:
        return
    for key in filter(is_template, workload.mapping):
        said = "a key of workload is a name, and cannot be a template"
        problems.error("template_key", said, workload.key_place(key), "write a name, and the template as its value")
    for text in workload.texts():
        if any(path[0] == "keychain" for path in _paths(text)):
            said = "keychain cannot be read in workload, whose values are recorded"
            at = place_in(text, line_of(str(text.value), "keychain"))
            problems.error("secret_recorded", said, at, "read it in the task that needs it")
    defaults = dict(_defaults(workload, ()))
    # What names itself means what the request gives, and needs nothing.
    needs = {
        path: [needed for needed in _needed(node, defaults, workload) if needed != path]
        for path, node in defaults.items()
    }
    _not_given(defaults, problems)
    for ring in _rings(needs):
        names = [f"workload.{'.'.join(map(str, path))}" for path in ring]
        way = f", by way of {', '.join(names[1:])}" if len(names) > 1 else ""
        said = f"the default {names[0]} needs itself{way}"
        problems.error("workload_ring", said, defaults[ring[0]].place, "let one of them do without the others")


def _not_given(defaults: _Defaults, problems: Problems) -> None:
    """Warn of values without a default: a request that does not give them is refused."""
    for path, node in defaults.items():
        for text in node.texts():
            for asked in _paths(text):
                named = asked[1:] if asked[0] == "workload" else asked
                if named[: len(path)] == path and not uses_of(str(text.value)).is_guarded(asked):
                    name = ".".join(map(str, path))
                    said = f"workload.{name} names itself: a request that does not give it is refused"
                    hint = f"write {{{{ {name} | default(…) }}}}, or the value"
                    problems.warning("not_given", said, node.place, hint)


def _defaults(node: Node, above: Path) -> Iterator[tuple[Path, Node]]:
    for key, part in node.mapping.items():
        if isinstance(part.value, dict):
            yield from _defaults(part, (*above, key))
        elif any(is_template(text.value) for text in part.texts()):
            yield (*above, key), part


def _needed(node: Node, defaults: _Defaults, workload: Node) -> Iterator[Path]:
    """Walk over the defaults that another one certainly asks for; a mapping that is read may be read in part."""
    for text in node.texts():
        for path in _paths(text):
            if path[0] == "workload":
                path = path[1:]
            elif path[0] in OF_WORKLOAD and not (path[0] in _OWN and path[0] in workload.mapping):
                continue
            yield from (path[:end] for end in range(1, len(path) + 1) if path[:end] in defaults)


def _paths(text: Node) -> frozenset[Path]:
    """Return what a template asks for; broken ones are told about elsewhere."""
    if is_template(text.value):
        with suppress(TemplateFailed):
            return uses_of(str(text.value)).paths
    return frozenset()


def _rings(needs: dict[Path, list[Path]]) -> Iterator[list[Path]]:
    """Walk over defaults that need themselves, each ring once, beginning with what is written first."""
    told: set[Path] = set()
    for start in needs:
        if start in told:
            continue
        ring = _ring(start, needs)
        if ring is not None:
            told.update(ring)
            yield ring


def _ring(start: Path, needs: dict[Path, list[Path]]) -> list[Path] | None:
    """Return the shortest way from a default back to itself."""
    came: dict[Path, Path | None] = {start: None}
    left = [start]
    for path in left:
        if start in needs[path]:
            way = [path]
            while (before := came[way[0]]) is not None:
                way.insert(0, before)
            return way
        for other in needs[path]:
            if other not in came:
                came[other] = path
                left.append(other)
    return None
