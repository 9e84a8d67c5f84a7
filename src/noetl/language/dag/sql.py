"""Reads SQL without running it: the text of a SELECT goes in, its tables and columns come out, or what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, SqlglotError
from sqlglot.optimizer.scope import traverse_scope

_SHOWN: Final = re.compile(r"[A-Za-z_]{1,40}|[^\w\s'\"`]{1,2}")
"""What may be shown of SQL that cannot be read: words and signs, never a literal."""


class SqlUnreadable(ValueError):
    """The SQL cannot be taken; the message says why and `line` where, counted from 1."""

    def __init__(self, said: str, line: int = 1, column: int = 1) -> None:
        super().__init__(said)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is read, as it is written; `line` and `column` count from 1."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT: the tables it reads from outside, and its columns where they can be told."""

    tables: tuple[Table, ...]
    columns: tuple[str, ...] | None


def read_select(text: str) -> Select:
    """Read one SELECT in Spark's dialect; anything else is refused."""
    tree = _tree(text)
    tables: dict[str, Table] = {}
    try:
        for scope in traverse_scope(tree):
            for source in scope.sources.values():
                # A function that yields rows, such as range(10), is no table to look for.
                if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier | exp.Dot):
                    found = _table(source)
                    tables.setdefault(found.name.lower(), found)
    except (OptimizeError, RecursionError) as error:
        raise SqlUnreadable("its tables cannot be told: two of them have one name") from error
    names = tree.named_selects
    told = not tree.is_star and all(names)
    return Select(tuple(tables.values()), tuple(names) if told else None)


def _tree(text: str) -> exp.Query:
    try:
        found = [one for one in sqlglot.parse(text, read="spark") if one is not None]
    except ParseError as error:
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        word = str(first.get("highlight") or "")
        near = f" near {word}" if _SHOWN.fullmatch(word) else ""
        column = max(int(first.get("col") or 1) - len(word) + 1, 1)
        raise SqlUnreadable(f"it cannot be read{near}", int(first.get("line") or 1), column) from None
    except SqlglotError:
        raise SqlUnreadable("it has a text, name or comment that is not closed") from None
    except RecursionError:
        raise SqlUnreadable("it is nested too deeply") from None
    found = [one for one in found if not isinstance(one, exp.Semicolon)]
    if len(found) != 1:
        raise SqlUnreadable("it holds no statement" if not found else f"it holds {len(found)} statements, not one")
    if not isinstance(found[0], exp.Query):
        raise SqlUnreadable("it is no SELECT")
    return found[0]


def _table(source: exp.Table) -> Table:
    parts = [part for part in source.parts if isinstance(part, exp.Identifier)]
    meta = parts[0].meta if parts else {}
    # The reader tells where a word ends.
    line, end = int(meta.get("line") or 1), int(meta.get("col") or 1)
    name = ".".join(part.name for part in parts)
    return Table(name, line, max(end - len(parts[0].name) + 1, 1) if parts else 1)
