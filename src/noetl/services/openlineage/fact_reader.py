"""Finds what is known about the tasks that events of the ledger speak of. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.model.catalogue.rows import types_of_attempts
from noetl.model.dataset import Field
from noetl.model.event import Event
from noetl.model.event_type import AttemptWord
from noetl.model.lineage import Lineage
from noetl.model.stream import Scope
from noetl.pipelines.datasets.lineage import LineageReader
from noetl.services.openlineage.facts import DatasetFacts, OutputFacts, State, TaskFacts

_WORDS: Final[dict[AttemptWord, State]] = {
    "begun": "START",
    "completed": "COMPLETE",
    "attempt_failed": "FAIL",
    "failed": "FAIL",
    "abandoned": "ABORT",
    "cancelled": "ABORT",
    # An attempt that was overtaken; a task that was skipped before anybody claimed it had none.
    "skipped": "ABORT",
}
_STATES: Final = {name: state for word, state in _WORDS.items() for name in types_of_attempts(word, at="task")}
_TASKS: Final = """
SELECT t.task_id::text AS task_id, t.dag, t.job, t.execution_id, t.created_at, t.inputs, j.operator, s.plan_time
FROM unnest($1::uuid[]) AS w (task_id)
JOIN noetl.task AS t ON t.task_id = w.task_id
JOIN noetl.job AS j USING (tenant_id, organization_id, job_id)
LEFT JOIN LATERAL (
    SELECT c.plan_time FROM noetl.event AS e
    JOIN noetl.schedule AS p ON p.name = substr(e.meta ->> 'requested_by', 10)
    JOIN noetl.cron_slot AS c ON c.schedule_id = p.schedule_id AND c.run_id = t.execution_id
    WHERE e.execution_id = t.execution_id AND e.stream_id = 'execution/' || t.execution_id::text
      AND e.stream_version = 1 AND starts_with(e.meta ->> 'requested_by', 'schedule/') LIMIT 1
) AS s ON true
"""
_GENERATIONS: Final = """
SELECT g.dataset_version::text AS dataset_version, g.dataset_uuid::text AS dataset_uuid, d.name, g.storage_location,
       s.schema
FROM unnest($1::uuid[]) AS w (dataset_version)
JOIN noetl.dataset_version AS g ON g.dataset_version = w.dataset_version
JOIN noetl.dataset AS d ON d.dataset_uuid = g.dataset_uuid
LEFT JOIN LATERAL (
    SELECT s.schema FROM noetl.dataset_schema AS s WHERE s.dataset_version = w.dataset_version
    ORDER BY s.version DESC LIMIT 1
) AS s ON true
"""


def is_told(event: Event) -> bool:
    """Whether an event is about the beginning or the end of an attempt."""
    return event.event_type in _STATES and bool(event.meta.get("attempt"))


class Gathering:
    """Looks up tasks of one organization; addresses of files begin with that of the lake."""

    def __init__(self, scope: Scope, database: Database, lineage: LineageReader, lake: str) -> None:
        self._scope = scope
        self._database = database
        self._lineage = lineage
        self._lake = lake.rstrip("/")

    async def facts(self, events: Sequence[Event]) -> list[TaskFacts]:
        """Return what is to be told about events, in their order; of tasks that are not kept any more nothing is."""
        told = [event for event in events if is_told(event)]
        if not told:
            return []
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_TASKS, sorted({_task_id(event) for event in told}))
            tasks = {row["task_id"]: row for row in rows}
            read = {task_id: _read(row) for task_id, row in tasks.items()}
            made = {output["dataset_version"] for event in told for output in _made(event)}
            datasets = await self._datasets(connection, made.union(*read.values()))
        lineages = {one: await self._lineage.lineage(one) for one in sorted(made)}
        return [
            self._facts(event, tasks[_task_id(event)], read[_task_id(event)], datasets, lineages)
            for event in told
            if _task_id(event) in tasks
        ]

    def _facts(
        self,
        event: Event,
        task: Any,
        read: Iterable[str],
        datasets: Mapping[str, DatasetFacts],
        lineages: Mapping[str, Lineage | None],
    ) -> TaskFacts:
        state = _STATES[event.event_type]
        inputs = tuple(datasets[one] for one in dict.fromkeys(read) if one in datasets)
        outputs = tuple(
            OutputFacts(
                dataset=datasets[version],
                rows=sum(one["rows"] for one in parts),
                bytes=sum(one.get("bytes", 0) for one in parts),
                lineage=lineages.get(version),
            )
            for version, parts in _by_version(_made(event)).items()
            if version in datasets
        )
        return TaskFacts(
            scope=self._scope,
            state=state,
            time=event.event_time,
            task_id=task["task_id"],
            attempt=event.meta["attempt"],
            dag=task["dag"],
            job=task["job"],
            operator=task["operator"],
            execution_id=task["execution_id"],
            nominal=task["plan_time"] or task["created_at"],
            inputs=inputs,
            outputs=outputs,
            names={one.dataset_uuid: one for one in inputs},
            error=(event.error or "it failed") if state == "FAIL" else None,
        )

    async def _datasets(self, connection: Connection, versions: Iterable[str]) -> dict[str, DatasetFacts]:
        rows = await connection.fetch(_GENERATIONS, sorted(versions))
        return {
            row["dataset_version"]: DatasetFacts(
                dataset_uuid=row["dataset_uuid"],
                name=row["name"],
                dataset_version=row["dataset_version"],
                location=f"{self._lake}/{row['storage_location']}",
                schema=msgspec.convert(
                    [dict(zip(("name", "type", "nullable"), one, strict=True)) for one in orjson.loads(row["schema"])],
                    tuple[Field, ...],
                )
                if row["schema"] is not None
                else (),
            )
            for row in rows
        }


def _task_id(event: Event) -> str:
    return event.stream_id.removeprefix("task/")


def _read(row: Any) -> list[str]:
    return [one["dataset_version"] for one in orjson.loads(row["inputs"] or "[]") if "dataset_version" in one]


def _made(event: Event) -> list[dict[str, Any]]:
    return list(event.context.get("outputs") or []) if event.event_type == "task.completed" else []


def _by_version(outputs: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in outputs:
        found.setdefault(one["dataset_version"], []).append(one)
    return found
