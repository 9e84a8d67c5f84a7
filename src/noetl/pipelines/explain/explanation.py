"""Where rows come from: conditions on a dataset go in, its rows with commit, task, code, inputs and cause come out.

Everything is read from what was recorded: manifests, rows of tasks, and the events themselves. Nothing is written.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.event import Event
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.history import EventReader
from noetl.pipelines.datasets.dataset_reader import DatasetReader, Seen
from noetl.pipelines.explain.conditions import read_conditions
from noetl.pipelines.explain.origins import Causes, Frames
from noetl.pipelines.explain.row_search import FoundRow, search
from noetl.pipelines.explain.values import Code, Explained, ExplainedRow, Maker, ReadPart
from noetl.pipelines.plan import identity
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tasks.routing.inputs import pinned_inputs

ROWS: Final = 10
"""Rows that are told about unless somebody asks for more."""
_COMMIT: Final = """
SELECT v.task_id::text AS task_id, v.attempt, v.committed_at FROM noetl.partition_version AS v
WHERE v.dataset_version = $1 AND v.partition_key = $2 AND v.version = $3
"""
_TASK: Final = """
SELECT t.task_id::text AS task_id, t.dag, t.job, t.partition_key, t.execution_id, t.worker, t.application_id, t.inputs,
       t.inputs_ref, t.created_at, t.ended_at, t.dag_version_id::text AS dag_version_id, j.job_hash, j.operator,
       j.definition, v.bundle_digest, v.code_digest
FROM noetl.task AS t
JOIN noetl.job AS j USING (tenant_id, organization_id, job_id)
JOIN noetl.dag_version AS v ON v.dag_version_id = t.dag_version_id
WHERE t.task_id = $1
"""
_READ: Final = """
SELECT w.dataset_version::text AS dataset_version, w.partition_key, w.version, d.dataset_uuid::text AS dataset_uuid,
       d.name, v.task_id::text AS task_id, v.manifest_ref
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY AS w (dataset_version, partition_key, version, place)
JOIN noetl.dataset_version AS g ON g.dataset_version = w.dataset_version
JOIN noetl.dataset AS d ON d.dataset_uuid = g.dataset_uuid
LEFT JOIN noetl.partition_version AS v
    ON v.dataset_version = w.dataset_version AND v.partition_key = w.partition_key AND v.version = w.version
ORDER BY w.place
"""


class Explaining:
    """Explains rows of the datasets of one organization."""

    def __init__(
        self, scope: Scope, database: Database, payloads: PayloadStore, history: EventReader, files: LakeFiles
    ) -> None:
        self._scope = scope
        self._database = database
        self._payloads = payloads
        self._history = history
        self._files = files
        self._reader = DatasetReader(scope, database, payloads, history)
        self._causes = Causes(scope, database, history)
        self._frames = Frames(scope, database, payloads)

    async def explain(self, seen: Seen, where: str, most: int = ROWS) -> Explained:
        """Find rows of a dataset as it was seen, and tell where each comes from."""
        conditions = await asyncio.to_thread(read_conditions, where, seen.schema)
        parts = await self._reader.files(seen)
        found = await asyncio.to_thread(search, self._files, parts, seen.schema, conditions, most)
        rows: list[ExplainedRow] = []
        makers: dict[str, Maker] = {}
        for one in found.rows:
            row, maker = await self._row(seen, one, makers)
            rows.append(row)
            makers[f"{maker.task_id}/{maker.attempt}"] = maker
        return Explained(
            dataset=seen.view.dataset.name,
            dataset_uuid=seen.view.dataset.dataset_uuid,
            generation=seen.generation.dataset_version,
            where=where,
            as_of=seen.mark.token(),
            rows=tuple(rows),
            makers=tuple(makers.values()),
            files=found.files,
            opened=found.opened,
            more=found.more,
        )

    async def _row(self, seen: Seen, one: FoundRow, known: dict[str, Maker]) -> tuple[ExplainedRow, Maker]:
        generation, part = seen.generation.dataset_version, one.file
        async with self._database.transaction(self._scope) as connection:
            commit = await connection.fetchrow(_COMMIT, generation, part.partition_key, part.entry.added)
        if commit is None:
            raise NotFound(f"the commit of {part.entry.path} is not kept any more")
        stream = identity.partition_stream(self._scope, generation, part.partition_key)
        said = await self._causes.event(stream, part.entry.added)
        maker = known.get(f"{commit['task_id']}/{commit['attempt']}")
        if maker is None:
            maker = await self._maker(commit["task_id"], commit["attempt"] or 0, said)
        frame = None
        if maker.playbook_execution is not None:
            frame = await self._frames.frame_of(maker, one.values, seen.schema)
        row = ExplainedRow(
            values=one.values,
            partition_key=part.partition_key,
            version=part.entry.added,
            file=part.entry.path,
            place=one.place,
            committed_at=commit["committed_at"],
            commit_event_id=None if said is None else str(said.event_id),
            task_id=maker.task_id,
            attempt=maker.attempt,
            frame=frame,
        )
        return row, maker

    async def _maker(self, task_id: str, attempt: int, committed: Event | None) -> Maker:
        async with self._database.transaction(self._scope) as connection:
            row = await connection.fetchrow(_TASK, task_id)
        if row is None:
            raise NotFound(f"task {task_id}, which made the row, is not kept any more")
        entries = await pinned_inputs(self._scope, self._payloads, row["inputs"], row["inputs_ref"])
        inputs = await self._inputs([(one["dataset_version"], *part[:2]) for one in entries for part in one["parts"]])
        events = [event async for event in self._history.read(identity.task_stream(self._scope, task_id))]
        done = next((one for one in events if one.event_type == "task.completed"), None)
        ran = None if done is None else (done.context.get("metrics") or {}).get("execution_id")
        definition = orjson.loads(row["definition"])
        sent = orjson.loads(row["inputs_ref"]) if row["inputs_ref"] is not None and not entries else None
        return Maker(
            task_id=task_id,
            attempt=attempt,
            dag=row["dag"],
            job=row["job"],
            partition_key=row["partition_key"],
            execution_id=str(row["execution_id"]),
            worker=next((one.meta.get("worker") for one in events if _claims(one, attempt)), row["worker"]),
            application_id=row["application_id"],
            code=Code(
                dag_version_id=row["dag_version_id"],
                bundle_digest=row["bundle_digest"],
                code_digest=row["code_digest"],
                job_hash=row["job_hash"],
                operator=row["operator"],
            ),
            inputs=inputs,
            sent=sent,
            playbook_execution=None if row["operator"] != "playbook" or ran is None else str(ran),
            playbook=definition.get("config", {}) if row["operator"] == "playbook" else {},
            causes=await self._causes.of_task(committed, events, attempt),
        )

    async def _inputs(self, parts: list[tuple[str, str, int]]) -> tuple[ReadPart, ...]:
        if not parts:
            return ()
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_READ, *(list(column) for column in zip(*parts, strict=True)))
        return tuple(
            ReadPart(
                dataset=row["name"],
                dataset_uuid=row["dataset_uuid"],
                dataset_version=row["dataset_version"],
                partition_key=row["partition_key"],
                version=row["version"],
                task_id=row["task_id"],
                manifest=None if row["manifest_ref"] is None else orjson.loads(row["manifest_ref"]).get("uri"),
            )
            for row in rows
        )


def _claims(event: Event, attempt: int) -> bool:
    return event.event_type == "task.claimed" and event.meta.get("attempt") == attempt
