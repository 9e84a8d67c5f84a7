"""Rewrites a query whose columns Python has no exact type for, moments with a time zone and intervals, to give them as text."""

from __future__ import annotations

import re
from typing import Any

import duckdb

_INEXACT = re.compile(r"(?:TIMESTAMP WITH TIME ZONE|INTERVAL)(?=[\[\],)]|$)")
_MOMENT = re.compile(r"\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d(?::\d\d)?")


def readable(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, params: Any
) -> tuple[duckdb.Statement | str, frozenset[str]]:
    """Return the statement, or its text with such columns cast, and the names of those; nothing is executed."""
    if statement.type != duckdb.StatementType.SELECT:
        return statement, frozenset()
    query = f"({statement.query.rstrip().rstrip(';')}\n)"
    try:
        columns = connection.execute(f"DESCRIBE SELECT * FROM {query}", params).fetchall()  # noqa: S608
    except duckdb.Error:
        # What is wrong with it shows when it is run as it is.
        return statement, frozenset()
    inexact = {name: kind for name, kind, *_ in columns if _INEXACT.search(kind)}
    if not inexact:
        return statement, frozenset()
    casts = ", ".join(
        f"CAST({quoted(name)} AS {_INEXACT.sub('VARCHAR', kind)}) AS {quoted(name)}" for name, kind in inexact.items()
    )
    # The task's own query with casts around its columns.
    return f"SELECT * REPLACE ({casts}) FROM {query}", frozenset(inexact)  # noqa: S608


def unreadable(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the columns of the connection's result that would have needed a cast."""
    return [str(name) for name, kind, *_ in connection.description or () if _INEXACT.search(str(kind))]


def like_all_moments(value: Any) -> Any:
    """Return the texts of such a column with moments written as all tools write them, in ISO 8601."""
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        day, _, rest = value.partition(" ")
        return f"{day}T{rest}" if rest.count(":") > 2 else f"{day}T{rest}:00"
    if isinstance(value, list):
        return [like_all_moments(item) for item in value]
    if isinstance(value, dict):
        return {name: like_all_moments(item) for name, item in value.items()}
    return value


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
