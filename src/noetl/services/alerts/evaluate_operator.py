"""The operator alert_evaluate: a condition over what a job reads, or over the ledger, becomes alerts and rows about them.

Config: `sql`, or `on` with what belongs to it; `severity`, `title`; `resolve: never` keeps alerts open for ever.
The output, if there is one, has a row for each alert that holds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from noetl.kernel.ledger.postgres.database import Database
from noetl.language.alert.rule import condition_of
from noetl.model.canonical import canonical_json
from noetl.model.catalogue.alerts import SEVERITIES
from noetl.model.stream import Scope
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.worker.in_process import OperatorFailed, Produced
from noetl.services.alerts.conditions import look
from noetl.services.alerts.findings import AlertRow, Found, Rules
from noetl.services.alerts.judgement import Judgement, Judging
from noetl.spark.drivers.protocol import Work

SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("rule", pa.string()),
        ("severity", pa.string()),
        ("title", pa.string()),
        ("message", pa.string()),
        ("subject", pa.string()),
        ("event_id", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("alert_id", pa.string()),
    ]
)


class AlertEvaluate:
    """Evaluates conditions of jobs."""

    def __init__(self, scope: Scope, database: Database, judging: Judging, reader: TableReader) -> None:
        self._scope = scope
        self._database = database
        self._judging = judging
        self._reader = reader

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Evaluate once. An attempt that is repeated finds the alerts it raised and raises none again."""
        grant = work.grant
        rules = Rules(f"job/{grant.dag}", grant.job)
        found, holds = await self._found(work, rules)
        judged = await self._judging.judge(
            self._scope,
            Judgement(
                rules=rules,
                evaluation=grant.lease.task_id,
                found=found,
                holds=holds,
                part="" if "on" in grant.config else grant.partition_key,
                seen_event_id=0 if "on" in grant.config else await self._seen(grant.lease.task_id),
                resolves=grant.config.get("resolve") != "never",
                execution_id=grant.execution_id,
            ),
            {},
        )
        standing = [row for row in judged.standing if row.status == "open"]
        metrics = {"found": len(found), "raised": judged.raised, "resolved": judged.resolved}
        tables = {0: table_of(standing)} if grant.targets else {}
        return Produced(tables=tables, metrics=metrics, log=f"{metrics}\n")

    async def _seen(self, task_id: str) -> int:
        """Return the event that made the task: what it reads is older than what later tasks read."""
        async with self._database.transaction(self._scope) as connection:
            made = await connection.fetchval("SELECT created_event_id FROM noetl.task WHERE task_id = $1", task_id)
        return int(made or 0)

    async def _found(self, work: Work, rules: Rules) -> tuple[list[Found], set[str] | None]:
        config = work.grant.config
        severity, title = config.get("severity", "error"), config.get("title")
        if "sql" in config:
            return await self._queried(work, severity), None
        async with self._database.transaction(self._scope) as connection:
            looked = await look(connection, condition_of(config))
        holds = None if looked.holds is None else {rules.alert_id(one) for one in looked.holds}
        told = [msgspec.structs.replace(one, severity=severity, title=title or one.title) for one in looked.found]
        return told, holds

    async def _queried(self, work: Work, severity: str) -> list[Found]:
        tables = {one.alias: await self._reader.read(work, one) for one in work.grant.inputs}
        query = Query(tables)
        running = asyncio.ensure_future(
            asyncio.to_thread(query.run, work.grant.config["sql"], severity, work.grant.job)
        )
        try:
            return await asyncio.shield(running)
        finally:
            if not running.done():
                query.interrupt()
                await asyncio.gather(running, return_exceptions=True)
            query.close()


def table_of(rows: Sequence[AlertRow]) -> pa.Table:
    """Return alerts as rows of a dataset."""
    columns: dict[str, list[Any]] = {
        "key": [row.alert_key for row in rows],
        "rule": [row.rule for row in rows],
        "severity": [row.severity for row in rows],
        "title": [row.title for row in rows],
        "message": [row.message for row in rows],
        "subject": [row.subject for row in rows],
        "event_id": [str(row.raised_event_id) for row in rows],
        "at": [row.last_seen for row in rows],
        "alert_id": [row.alert_id for row in rows],
    }
    return pa.table(columns, schema=SCHEMA)


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
