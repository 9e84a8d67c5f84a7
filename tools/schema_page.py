"""Renders the schema as one page of the reference: each table with its meaning, who writes it, and from which events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from noetl.model.catalogue import EVENT_TYPES, rows
from noetl.runtime.postgres.migrations import SCHEMA, chapters

_TABLE = re.compile(r"^CREATE TABLE noetl\.(\w+) \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^    ([a-z_0-9]+) +([a-z]+(?: precision)?(?:\[\])?)(.*?)(?:,|$)", re.MULTILINE)
_NOTE = re.compile(r"^COMMENT ON (\w+) noetl\.([\w.]+) IS\s+'((?:[^']|'')*)';", re.MULTILINE)
_GRANT = re.compile(r"GRANT ([A-Z, ]+?)(?: \(([^)]*)\))? ON\s+([^;]*?)\s+TO ([^;]*);")
_WRITES = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) noetl\.(\w+)")
_NO_COLUMN = {"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK"}


def render_schema() -> str:
    """Return the page."""
    parts = [
        "# The schema\n\nMade from `src/noetl/schema` and the event catalogue. Every table lies in the database schema `noetl`. Rows that\n"
        "follow from events are written in the transaction of the append, by the function named, and by nobody else; `noetl\n"
        "verify` folds the ledger and compares.\n"
    ]
    for title, files in chapters().items():
        sections = [section for file in files for section in _sections(file)]
        functions = [line for file in files for line in _function(file)]
        if functions:
            sections.append("| function | what it does |\n|---|---|\n" + "\n".join(functions) + "\n")
        if sections:
            parts += [f"## {title}\n", *sections]
    return "\n".join(parts)


def _notes(text: str) -> dict[tuple[str, str], str]:
    return {(kind, what): _told(note.replace("''", "'")) for kind, what, note in _NOTE.findall(text)}


def _function(file: Path) -> Iterator[str]:
    if file.parent.name == "functions":
        yield f"| `{file.stem}` | {_notes(file.read_text())['FUNCTION', file.stem]} |"


def _sections(file: Path) -> Iterator[str]:
    name, text = file.stem, file.read_text()
    notes = _notes(text)
    match file.parent.name:
        case "tables":
            yield f"### {name}\n\n{notes['TABLE', name]}\n\n{_writers(name)}\n\n{_columns(name, text, notes)}"
        case "views":
            yield f"### {name}\n\nA view. {notes['VIEW', name]}\n"
        case "types":
            yield f"### {name}\n\nA composite type. {notes['TYPE', name]}\n"


def _told(note: str) -> str:
    return note.replace("|", "\\|").replace("<", "&lt;")


def _columns(name: str, text: str, notes: dict[tuple[str, str], str]) -> str:
    found = _TABLE.search(text)
    if found is None:
        return "It has the columns of [event](#event).\n"
    lines = ["| column | type | |", "|---|---|---|"]
    for column, kind, rest in _COLUMN.findall(found[2]):
        if column.upper() not in _NO_COLUMN:
            optional = "" if "NOT NULL" in rest or "PRIMARY KEY" in rest else "May be null. "
            told = notes.get(("COLUMN", f"{name}.{column}"), "")
            lines.append(f"| `{column}` | {kind} | {(optional + told).strip()} |")
    return "\n".join(lines) + "\n"


def _writers(table: str) -> str:
    """Say who writes a table, and from which events."""
    said = []
    if table in rows.APPLIED_BY:
        said.append(f"Written by the append (`{rows.APPLIED_BY[table]}`).")
    elif table in rows.WRITTEN_BESIDE:
        said.append("Written by whoever appends the event, in the same transaction.")
    else:
        functions = sorted(file.stem for file in (SCHEMA / "functions").glob("*.sql") if table in _written(file))
        if functions:
            said.append(f"Written by {', '.join(f'`{name}`' for name in functions)}.")
    for verb, column in (("Opened", "opens"), ("Changed", "changes"), ("Ended", "ends")):
        types = sorted(kind.name for kind in EVENT_TYPES if table in getattr(kind, column))
        if types:
            said.append(f"{verb} by {', '.join(f'`{name}`' for name in types)}.")
    whole, parts = _granted(table)
    if whole:
        said.append(f"Roles that write it: {', '.join(f'`{role}`' for role in whole)}.")
    said += [f"Without an event, `{role}` moves {columns}." for role, columns in parts]
    if not said:
        said.append("Its rows are made with the schema and stay as they are.")
    return " ".join(said)


def _written(file: Path) -> set[str]:
    return set(_WRITES.findall(file.read_text()))


def _granted(table: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the roles that may write a table as a whole, and those that may change some of its columns."""
    whole: list[str] = []
    parts: list[tuple[str, str]] = []
    for rights, columns, tables, roles in _GRANT.findall((SCHEMA / "policies.sql").read_text()):
        if f"noetl.{table}" not in re.split(r",\s*", tables.strip()) or rights == "SELECT":
            continue
        for role in re.split(r",\s*", roles.strip()):
            if columns:
                parts.append((role, ", ".join(f"`{column}`" for column in re.split(r",\s*", columns.strip()))))
            else:
                whole.append(role)
    return whole, parts
