"""Runs the SQL of a condition over tables: each row it returns is one thing found. Reaches no file, network or setting."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import duckdb
import pyarrow as pa

from noetl.alerts.found import Found
from noetl.model.canonical import canonical_json
from noetl.model.catalogue.alerts import SEVERITIES
from noetl.pipelines.in_process import OperatorFailed

MOST: Final = 1_000
"""Alerts that one evaluation may raise; more of them tell nobody anything."""
_NAMED: Final = ("severity", "title", "message", "key")
_SETTINGS: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
    "threads": "2",
}
_SHOWN: Final = 300


class Query:
    """One run of a condition's SQL, which another thread may interrupt."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self._connection = duckdb.connect(config=dict(_SETTINGS))

    def run(self, sql: str, severity: str, rule: str) -> list[Found]:
        """Return what the SQL finds; this blocks."""
        connection = self._connection
        try:
            for alias, table in self._tables.items():
                connection.register(alias, table)
            connection.execute("SET lock_configuration = true")
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise OperatorFailed("the sql of alert_evaluate must be one SELECT", retryable=False)
            connection.execute(statements[0])
            names = [column[0] for column in connection.description or ()]
            rows = connection.fetchmany(MOST + 1)
        except duckdb.Error as problem:
            told = str(problem).splitlines()[0][:_SHOWN]
            raise OperatorFailed(f"the sql of alert_evaluate fails: {told}", retryable=False) from None
        if len(rows) > MOST:
            raise OperatorFailed(
                f"the condition returned more than {MOST} rows, each of them an alert; let the SQL group them",
                retryable=False,
            )
        return [_found(dict(zip(names, row, strict=True)), severity, rule) for row in rows]

    def interrupt(self) -> None:
        """Stop what runs."""
        self._connection.interrupt()

    def close(self) -> None:
        """Let go of the tables."""
        self._connection.close()


def _found(row: dict[str, Any], severity: str, rule: str) -> Found:
    told = str(row["severity"]).lower() if row.get("severity") is not None else severity
    if told not in SEVERITIES:
        raise OperatorFailed(
            f"the condition returned the severity {told[:40]!r}; it is one of {', '.join(SEVERITIES)}", retryable=False
        )
    rest = {name: _plain(value) for name, value in row.items() if name not in _NAMED}
    key = row.get("key")
    return Found(
        subject=str(key) if key is not None else hashlib.sha256(canonical_json(_all(row))).hexdigest()[:16],
        title=str(row["title"]) if row.get("title") is not None else f"{rule} holds",
        message=str(row["message"]) if row.get("message") is not None else _line(rest),
        severity=told,
    )


def _all(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _line(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _plain(value: Any) -> Any:
    """Return a value as canonical JSON takes it: what it does not know, as text."""
    match value:
        case None | bool() | str():
            return value
        case int() if abs(value) < 1 << 53:
            return value
        case datetime() | date():
            return value.isoformat()
        case int() | float() | Decimal():
            return str(value)
        case _:
            return repr(value)
