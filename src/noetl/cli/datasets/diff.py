"""What `noetl datasets diff` says: a difference between two generations as text, and as facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.cli.datasets.rows import cell, plain
from noetl.cli.terminal.tables import rendered

if TYPE_CHECKING:
    from noetl.pipelines.datasets.comparison import Difference, Example
    from noetl.pipelines.datasets.dataset_reader import Build

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def facts(name: str, old: Build, new: Build, found: Difference) -> dict[str, Any]:
    """Return a difference as plain values."""
    import msgspec

    told: dict[str, Any] = {
        **msgspec.structs.asdict(found),
        "schema": [msgspec.structs.asdict(one) for one in found.schema],
        "examples": [msgspec.structs.asdict(one) for one in found.examples],
    }
    return {
        "name": name,
        "from": old.generation.dataset_version,
        "to": new.generation.dataset_version,
        "same": found.is_empty,
        **{field: plain(value) for field, value in told.items()},
    }


def text(name: str, old: Build, new: Build, found: Difference) -> str:
    """Return a difference as text."""
    sides = [f"{build.generation.dataset_version[:8]} ({build.use})" for build in (old, new)]
    lines = [f"{name}: {sides[0]} against {sides[1]}"]
    if found.is_empty:
        return "\n".join([*lines, f"nothing differs in {found.rows_after:,} rows", ""])
    for column in found.schema:
        shown = {"added": column.after, "removed": column.before, "type": f"{column.before} -> {column.after}"}
        lines.append(f"  {_SIGNS.get(column.change, '~')} column {column.name} {shown[column.change]}")
    by = f"rows told apart by {', '.join(found.key)}" if found.key else "whole rows compared"
    lines.append(f"rows: {found.rows_before:,} -> {found.rows_after:,} ({by})")
    changed = f", {found.changed:,} changed" if found.key else ""
    lines.append(f"  {found.added:,} added, {found.removed:,} removed{changed}")
    lines += [f"note: {note}" for note in found.notes]
    table = ""
    if found.columns:
        counts = sorted(found.columns.items(), key=lambda one: -one[1])
        table = "\n" + rendered(("column", "rows changed"), [(column, f"{count:,}") for column, count in counts])
    examples = [_example(one) for one in found.examples]
    return "\n".join([*lines, ""]) + table + ("\n" + "\n".join([*examples, ""]) if examples else "")


def _example(one: Example) -> str:
    row = ", ".join(f"{name}={_value(value)}" for name, value in one.row.items())
    pairs = "; ".join(f"{name}: {_value(old)} -> {_value(new)}" for name, (old, new) in one.columns.items())
    return f"{_SIGNS[one.change]} {row}{f'  {pairs}' if pairs else ''}"


def _value(value: Any) -> str:
    return "null" if value is None else cell(value)
