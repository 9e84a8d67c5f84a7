"""The queries, their tables and what is true about them, read from the files beside."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from noetl.model.lineage import Edge

HOME: Final = Path(__file__).parent / "tpch"
QUERIES: Final = {path.stem: path.read_text() for path in sorted(HOME.glob("q*.sql"))}


def tables() -> dict[str, dict[str, str]]:
    """Return the tables: columns with their types."""
    found = {}
    for line in (HOME / "tables.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, *columns = line.split()
            found[name] = dict(column.split(":", 1) for column in columns)
    return found


def truth() -> dict[str, set[Edge]]:
    """Return the edges of each query."""
    found: dict[str, set[Edge]] = {}
    query = ""
    for line in (HOME / "truth.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            query = line.strip()
            found[query] = set()
            continue
        column, kind, *sources = line.split()
        for source in sources:
            table, name = source.split(".")
            output = None if column == "rows" else column
            found[query].add(Edge(output, table, None if name == "*" else name, kind))  # type: ignore[arg-type]
    return found
