"""The operator alert_evaluate: a condition over what a job reads, or over the ledger, becomes alerts and rows about them.

Config: `sql`, or `on` with what belongs to it; `severity`, `title`; `resolve: never` keeps alerts open for ever.
The output, if there is one, has a row for each alert that holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from noetl.alerts.conditions import look
from noetl.alerts.found import AlertRow, Found, Rules
from noetl.alerts.judging import Judgement, Judging
from noetl.alerts.operators.query import Query
from noetl.alerts.rule import condition_of
from noetl.ledger.database import Database
from noetl.model.stream import Scope
from noetl.pipelines.in_process import Produced
from noetl.pipelines.tables import TableReader
from noetl.spark.protocol import Work

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
