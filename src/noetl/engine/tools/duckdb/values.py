"""DuckDB's columns as plain JSON values, with their types where JSON cannot tell them; DuckDB's errors as problems."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import duckdb

from noetl.engine.tools.outcome import Problem, ProblemKind
from noetl.engine.tools.plain import plain
from noetl.errors import NoetlError

_FIRST, _LAST = (
    dt.datetime.combine(day, time) for day, time in ((dt.date.min, dt.time.min), (dt.date.max, dt.time.max))
)
_KINDS: list[tuple[type[Exception], ProblemKind, bool]] = [
    (duckdb.ConstraintException, "db_constraint", False),
    (duckdb.TransactionException, "db_deadlock", True),
    (duckdb.ConversionException, "transform", False),
    (duckdb.OutOfRangeException, "transform", False),
    (duckdb.OutOfMemoryException, "storage_quota", False),
    (duckdb.PermissionException, "auth", False),
    (duckdb.HTTPException, "connection", True),
    (duckdb.IOException, "storage_access", False),
    (duckdb.InterruptException, "db_timeout", True),
    (duckdb.FatalException, "server_error", False),
    (duckdb.InternalException, "server_error", False),
    (duckdb.ProgrammingError, "schema", False),
]


_ELSEWHERE = (
    "Tasks that name no `database` share one per execution on each worker; what another worker made is not in it: name a"
    " `database` that all of them reach."
)


class BadTask(NoetlError):
    """The duckdb task cannot be run as it is."""

    code = "command_invalid"


def plain_value(value: Any) -> Any:
    """Return one value in plain JSON types."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind is dict:
        return {_key(name): plain_value(item) for name, item in value.items()}
    if kind in (list, tuple):
        return [plain_value(item) for item in value]
    if kind is dt.datetime and value.replace(tzinfo=None) in (_FIRST, _LAST):
        return "infinity" if value.year > 1 else "-infinity"
    if kind is dt.date and value in (dt.date.min, dt.date.max):
        return "infinity" if value.year > 1 else "-infinity"
    return plain(value)


def _key(name: Any) -> str:
    text = plain_value(name)
    return text if isinstance(text, str) else str(text)


def problem_of(error: BaseException, source: str = "duckdb", *, shared: bool = False) -> Problem:
    """Return the problem an error of DuckDB, the file system or the task's own options stands for.

    `shared` says that the task named no database: what it looks for may have been made by another worker.
    """
    fields: dict[str, Any] = {"source": source, "exception_type": type(error).__name__}
    if isinstance(error, BadTask):
        return Problem(kind="schema", message=error.message, code=error.code, **fields)
    if isinstance(error, NoetlError):
        transient = error.disposition == "transient"
        kind: ProblemKind = "connection" if transient else "auth"
        return Problem(kind=kind, message=error.message, retryable=transient, code=error.code, **fields)
    if isinstance(error, TimeoutError):
        return Problem(kind="db_timeout", message="the duckdb task did not finish in time", retryable=True, **fields)
    if isinstance(error, duckdb.Error):
        return _of_duckdb(error, fields, shared=shared)
    if isinstance(error, ValueError | OverflowError):
        return Problem(kind="transform", message=f"a value has no plain form: {error}", **fields)
    if isinstance(error, OSError):
        return Problem(kind="storage_access", message=f"the database file cannot be used: {error.strerror}", **fields)
    raise error


def _of_duckdb(error: duckdb.Error, fields: dict[str, Any], *, shared: bool) -> Problem:
    message = str(error)
    if "Could not set lock on file" in message:
        # Another process has the file open and will close it.
        text = "another process has the DuckDB file open"
        return Problem(kind="db_connection", message=text, retryable=True, **fields)
    if isinstance(error, duckdb.ParserException | duckdb.CatalogException):
        if shared and "does not exist" in message:
            message = f"{message}\n{_ELSEWHERE}"
        return Problem(kind="schema", message=message, **fields)
    if "extension" in message.lower() and ("download" in message or "not found" in message):
        text = f"a DuckDB extension that the task needs is not installed here: {message.splitlines()[0]}"
        return Problem(kind="schema", message=text, code="extension_missing", **fields)
    for kind, name, retryable in _KINDS:
        if isinstance(error, kind):
            return Problem(kind=name, message=message, retryable=retryable, **fields)
    return Problem(kind="unknown", message=message, **fields)


_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TOLD: Final = {
    "BLOB": "binary",
    "DATE": "date",
    "DOUBLE": "double",
    "FLOAT": "float",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMP_MS": "timestamp_ntz",
    "TIMESTAMP_S": "timestamp_ntz",
}
_JSON_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT.*[+-]\d\d:\d\d")


def types_of(
    description: Iterable[Sequence[Any]], rows: Sequence[Mapping[str, Any]], texts: Collection[str]
) -> dict[str, str]:
    """Return the types by column; `texts` are those that were cast to text, which moments with a zone are."""
    found = {str(name): _told(str(kind)) for name, kind, *_ in description}
    for name in texts:
        values = [row[name] for row in rows if row[name] is not None]
        if values and all(isinstance(value, str) and _JSON_MOMENT.fullmatch(value) for value in values):
            found[name] = "timestamp"
    return {name: told for name, told in found.items() if told is not None}


def _told(kind: str) -> str | None:
    if kind.endswith("[]"):
        inner = _told(kind.removesuffix("[]"))
        return None if inner is None else f"array<{inner}>"
    digits = _DECIMAL.fullmatch(kind)
    return _TOLD.get(kind) if digits is None else f"decimal({digits[1]},{digits[2]})"


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
