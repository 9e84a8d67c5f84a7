"""Checks of a table that was made in this process, answered by DuckDB. Only reads.

As on Spark, promises about single rows are held against the new rows, and those about all rows against what stands too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from noetl.errors import InputError
from noetl.language.dag.model import Check
from noetl.model.task import CheckResult, TaskTarget

WHOLE: Final = ("unique", "row_count", "freshness", "sql")
"""Promises about a partition as it will stand."""
_SHOWN: Final = 200
_WORDS: Final = {
    "not_null": "rows are null",
    "unique": "rows have a key that another row has",
    "range": "rows are out of range",
    "set": "rows have a value that is not allowed",
    "sql": "rows were returned by the query",
}


def checks_of(written: Sequence[dict[str, Any]], target: TaskTarget) -> list[Check]:
    """Return the checks of an output as a grant carries them, and that columns declared not to be null are not."""
    own = [check for check in (msgspec.convert(one, Check) for one in written) if check.output == target.output]
    full = tuple(one.name for one in target.declared if not one.nullable)
    return [*own, Check(kind="not_null", columns=full, output=target.output)] if full else own


def checked(rows: pa.Table, standing: pa.Table | None, checks: Sequence[Check]) -> tuple[CheckResult, ...]:
    """Return how each check came out for new rows and those that stand beside them."""
    if not checks:
        return ()
    for check in checks:
        unknown = [name for name in check.columns if name not in rows.column_names]
        if unknown:
            held = ", ".join(sorted(rows.column_names))
            raise InputError(f"check {check.label} names the column {unknown[0]!r}; there are only {held}")
    whole = rows if standing is None else pa.concat_tables([standing, rows], promote_options="permissive")
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        results = []
        for check in checks:
            about = whole if check.kind in WHOLE else rows
            connection.register("output", about)
            results.append(_one(connection, check, about.num_rows))
        return tuple(results)


def _one(connection: duckdb.DuckDBPyConnection, check: Check, rows: int) -> CheckResult:
    if check.kind == "row_count":
        violations, detail = _row_count(check, rows)
    else:
        query, parameters = _violations(check)
        try:
            ((found,),) = connection.execute(query, parameters).fetchall()
            violations = int(found or 0)
            detail = "" if not violations else _detail(check, violations, rows)
        except duckdb.Error as problem:
            violations, detail = 1, str(problem)[:_SHOWN]
    return CheckResult(
        label=check.label,
        passed=not violations,
        severity=check.severity,
        violations=violations,
        detail=detail,
        output=check.output,
    )


def _row_count(check: Check, rows: int) -> tuple[int, str]:
    if check.min is not None and rows < check.min:
        return 1, f"{rows} rows, at least {check.min} expected"
    if check.max is not None and rows > check.max:
        return 1, f"{rows} rows, at most {check.max} expected"
    return 0, ""


def _detail(check: Check, violations: int, rows: int) -> str:
    if check.kind == "freshness":
        return f"no row is younger than {check.max_age_seconds:.0f} s" if rows else "there are no rows"
    return f"{violations} {_WORDS[check.kind]}"


def _violations(check: Check) -> tuple[str, list[Any]]:
    """Return a query that counts what breaks a check, with its values."""
    names = [_quoted(name) for name in check.columns]
    match check.kind:
        case "not_null":
            return _rows_where(f"{name} IS NULL" for name in names), []
        case "unique":
            keys = ", ".join(names)
            return f"SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM output GROUP BY {keys})", []  # noqa: S608
        case "range":
            bounds = [(sign, value) for sign, value in (("<", check.min), (">", check.max)) if value is not None]
            broken = _rows_where(f"{name} {sign} ?" for name in names for sign, _ in bounds)
            return broken, [value for _ in names for _, value in bounds]
        case "set":
            allowed = f"({', '.join('?' for _ in check.values)})"
            broken = _rows_where(f"({name} IS NOT NULL AND {name} NOT IN {allowed})" for name in names)
            return broken, [value for _ in names for value in check.values]
        case "freshness":
            stale = f"coalesce(max({names[0]})::TIMESTAMPTZ < now() - to_seconds(?), true)"
            return f"SELECT CASE WHEN {stale} THEN 1 ELSE 0 END FROM output", [check.max_age_seconds]  # noqa: S608
        case _:
            return f"SELECT count(*) FROM ({check.sql}) AS violation", []  # noqa: S608


def _rows_where(broken: Iterable[str]) -> str:
    return f"SELECT count(*) FROM output WHERE {' OR '.join(broken)}"  # noqa: S608


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
