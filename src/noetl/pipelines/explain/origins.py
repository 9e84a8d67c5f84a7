"""Where a row comes from: events of its commit go in, the chain of causes and the frame that made it come out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa

from noetl.engine.dispatch.loops.results import rows_of
from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.dataset import Field
from noetl.model.event import Event, time_text
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, Stream, execution_stream
from noetl.pipelines.catalog.datasets.history import EventReader
from noetl.pipelines.explain.values import Cause, FrameOf, Maker
from noetl.pipelines.operators.playbook import records, table_of
from noetl.pipelines.plan import identity

_STEPS: Final = 100
# The newest of a task's inputs that its own run made is what it was waiting for.
_TRIGGER: Final = """
SELECT v.dataset_version::text AS dataset_version, v.partition_key, v.version, v.task_id::text AS task_id, d.name
FROM noetl.task_input AS i
JOIN noetl.partition_version AS v ON v.dataset_version = i.input_dataset_version
    AND v.partition_key = i.input_partition_key AND v.version = i.input_version
JOIN noetl.task AS made ON made.task_id = v.task_id
JOIN noetl.dataset AS d ON d.dataset_uuid = v.dataset_uuid
WHERE i.task_id = $1 AND made.execution_id = $2 ORDER BY v.committed_at DESC, v.partition_key LIMIT 1
"""
_SLOT: Final = """
SELECT c.plan_time, c.execution_id FROM noetl.schedule AS s
JOIN noetl.cron_slot AS c USING (tenant_id, organization_id, schedule_id) WHERE s.name = $1 AND c.run_id = $2 LIMIT 1
"""


class Causes:
    """Follows causes within one organization."""

    def __init__(self, scope: Scope, database: Database, history: EventReader) -> None:
        self._scope = scope
        self._database = database
        self._history = history

    async def of_task(self, committed: Event | None, events: Sequence[Event], attempt: int) -> tuple[Cause, ...]:
        """Return the chain of a commit whose task has these events."""
        chain: list[Cause] = []
        if committed is not None:
            chain.append(_cause(committed, f"job {committed.node_name} committed it"))
        chain += [
            _cause(one, f"{one.meta.get('worker')} took the task, attempt {attempt}")
            for one in events
            if one.event_type == "task.claimed" and one.meta.get("attempt") == attempt
        ]
        created = next((one for one in events if one.event_type == "task.created"), None)
        for _ in range(_STEPS):
            if created is None:
                break
            chain.append(_cause(created, f"a task of job {created.node_name} was made, {_partition(created)}"))
            before = await self._trigger(created)
            if before is None:
                return (*chain, *await self._run(created.execution_id))
            commit, created = before
            if commit is not None:
                chain.append(_cause(commit, f"job {commit.node_name} committed what it reads, {_partition(commit)}"))
        return tuple(chain)

    async def _trigger(self, created: Event) -> tuple[Event | None, Event | None] | None:
        """Return the commit a task was made for, and how the task behind that began; None if it began a run itself."""
        task_id = created.stream_id.removeprefix("task/")
        async with self._database.transaction(self._scope) as connection:
            row = await connection.fetchrow(_TRIGGER, task_id, created.execution_id)
        if row is None:
            return None
        part = identity.partition_stream(self._scope, row["dataset_version"], row["partition_key"])
        commit = await self.event(part, row["version"])
        return commit, await self.event(identity.task_stream(self._scope, row["task_id"]), 1)

    async def _run(self, execution_id: int) -> list[Cause]:
        """Return how a run was asked for, and what asked for it, up to where it all began."""
        found: list[Cause] = []
        wanted: int | None = execution_id
        for _ in range(_STEPS):
            if wanted is None:
                break
            event = await self.event(execution_stream(self._scope, wanted), 1)
            if event is None:
                break
            found.append(_cause(event, await self._asked(event)))
            wanted = event.parent_execution_id
        return found

    async def _asked(self, event: Event) -> str:
        meta = event.meta
        by, kind = str(meta.get("requested_by") or "somebody"), str(meta.get("kind") or "playbook")
        name = meta.get("dag") or meta.get("path") or ""
        said = f"{by} asked for it: {kind} of {name}".rstrip()
        if by.startswith("schedule/"):
            async with self._database.transaction(self._scope) as connection:
                slot = await connection.fetchrow(_SLOT, by.removeprefix("schedule/"), event.execution_id)
            if slot is not None:
                said += f", for its slot of {time_text(slot['plan_time'])}"
        return said

    async def event(self, stream: Stream, version: int) -> Event | None:
        """Return the event of a stream's version; None if it is not kept."""
        async for event in self._history.read(stream, version):
            return event
        return None


def _cause(event: Event, said: str) -> Cause:
    return Cause(
        event_id=str(event.event_id),
        event_type=event.event_type,
        time=event.event_time,
        execution_id=str(event.execution_id),
        said=said,
    )


def _partition(event: Event) -> str:
    return f"partition {event.meta.get('partition_key')}"


_DONE: Final = sql_texts(types_of_attempts("completed", at="frame"))
_FRAMES: Final = f"""
SELECT e.event_id, e.frame_id, e.payload_ref, e.node_name, s.node_name AS step FROM noetl.event AS e
LEFT JOIN LATERAL (
    SELECT o.node_name FROM noetl.event AS o
    WHERE o.execution_id = $1 AND o.event_type = 'stage.opened' AND o.stage_id = e.stage_id LIMIT 1
) AS s ON true
WHERE e.execution_id = $1 AND e.event_type IN ({_DONE}) AND e.payload_ref IS NOT NULL
ORDER BY e.event_id
"""  # noqa: S608 - ours
_KEPT: Final = 64


class Frames:
    """Looks into frames of one organization; what was read of a playbook's run is kept for the next row."""

    def __init__(self, scope: Scope, database: Database, payloads: PayloadStore) -> None:
        self._scope = scope
        self._database = database
        self._payloads = payloads
        self._listed: dict[str, list[Any]] = {}
        self._rows: dict[int, list[dict[str, Any]]] = {}

    async def frame_of(self, maker: Maker, values: dict[str, Any], schema: Sequence[Field]) -> FrameOf | None:
        """Return the frame that gave a row; None if the playbook made it without frames, or they are not kept."""
        ran = maker.playbook_execution
        assert ran is not None
        if ran not in self._listed:
            async with self._database.transaction(self._scope) as connection:
                self._listed[ran] = list(await connection.fetch(_FRAMES, int(ran)))
        step = maker.playbook.get("step")
        path = [part for part in str(maker.playbook.get("rows", "")).split(".") if part]
        for frame in self._listed[ran]:
            of = frame["step"] or frame["node_name"]
            if step is not None and of is not None and of != step:
                continue
            ref = msgspec.convert(orjson.loads(frame["payload_ref"]), PayloadRef)
            if values in await self._made(frame["event_id"], ref, path, schema):
                return FrameOf(
                    execution_id=ran,
                    step=of,
                    frame_id=None if frame["frame_id"] is None else str(frame["frame_id"]),
                    event_id=str(frame["event_id"]),
                    payload=ref.uri,
                )
        return None

    async def _made(
        self, event_id: int, ref: PayloadRef, path: Sequence[str], schema: Sequence[Field]
    ) -> list[dict[str, Any]]:
        """Return the rows a frame gave, as the dataset has them."""
        if event_id not in self._rows:
            try:
                found = list(records(rows_of(await self._payloads.view(self._scope, ref)), path))
                table = await asyncio.to_thread(table_of, found, schema)
            except (NoetlError, pa.ArrowInvalid):
                return []
            if len(self._rows) >= _KEPT:
                self._rows.clear()
            self._rows[event_id] = table.to_pylist()
        return self._rows[event_id]
