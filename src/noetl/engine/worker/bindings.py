"""The `input` of steps and tasks, ready to be rendered: what is written goes in, what tools are given comes out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from noetl.language.templates.origins import origins_at
from noetl.language.templates.result_view import NOWHERE, View
from noetl.language.templates.template import CompiledValue, compile_value

TABLE_KINDS: Final = frozenset({"duckdb", "spark"})
"""Kinds of tools that take a loop in their input as a table, and read its frames where they lie."""
CODE_KINDS: Final = frozenset({"python", "script"})
"""Kinds of tools whose code may ask for any name, and finds the names beside a result that it is given."""
NAME_ALONE: Final = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")


def compile_input(given: dict[str, Any], where: str, origins: Any, kinds: Collection[str]) -> CompiledValue | None:
    """Return bindings ready to be rendered often, for tools of some kinds.

    Tools that take tables get a result's reference with its fields; a binding that is a result as a whole comes to a view
    where some tool runs code.
    """
    if not given:
        return None
    takes_tables = TABLE_KINDS.issuperset(kinds)
    if not takes_tables and CODE_KINDS.isdisjoint(kinds):
        return compile_value(given, where, origins)
    parts = {
        name: _compile(value, f"{where}.{name}", origins_at(origins, name))
        if takes_tables
        else compile_value(value, f"{where}.{name}", origins_at(origins, name), reading="whole")
        for name, value in given.items()
    }
    return CompiledValue(
        lambda names: {name: part.render(names) for name, part in parts.items()},
        is_constant=all(part.is_constant for part in parts.values()),
    )


def _compile(value: Any, where: str, origins: Any) -> CompiledValue:
    compiled = compile_value(value, where, origins)
    alone = NAME_ALONE.fullmatch(value) if isinstance(value, str) else None
    if alone is None:
        return compiled
    asked = alone[1]

    def render(names: Mapping[str, Any]) -> Any:
        made, seen = compiled.render(names), names[asked]
        ref = seen.find("_ref") if isinstance(seen, View) else NOWHERE
        if ref is NOWHERE or not (made is None or isinstance(made, Mapping)):
            return made
        return {**(made or {}), "_ref": ref}

    return CompiledValue(render, is_constant=False)
