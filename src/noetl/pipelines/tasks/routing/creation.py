"""Wanted tasks become tasks, each at most once; work that was done before on equal inputs is recorded as skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import PayloadCollected, VersionConflict
from noetl.faults import reach
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.event import Draft
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_values import WantedTask
from noetl.pipelines.tasks.jobs import JobFacts

INLINE_BYTES: Final = 48 * 1024
"""Inputs up to this size stand in the event itself."""
JSON: Final = "application/json"

_THERE: Final = "SELECT t.task_id::text AS task_id FROM noetl.task AS t WHERE t.task_id = ANY ($1::uuid[])"
_DONE: Final = f"""
SELECT t.task_id::text AS task_id, t.memo_key, t.outputs FROM noetl.task AS t
WHERE t.memo_key = ANY ($1) AND t.status = 'Completed' AND t.generation = $2
  -- What is under way there may replace what stands by then.
  AND NOT EXISTS (
    SELECT FROM noetl.task AS o
    WHERE o.generation = t.generation AND o.partition_key = t.partition_key AND o.status = 'Running')
  AND NOT EXISTS (
    SELECT FROM noetl.task AS o
    WHERE o.runtime = t.runtime AND {TASK.waiting("o")}
      AND o.generation = t.generation AND o.partition_key = t.partition_key)
ORDER BY t.ended_at DESC
"""  # noqa: S608
_CURRENT: Final = """
SELECT count(*) FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS w (dataset_version, partition_key, version)
JOIN noetl.partition_version AS v USING (dataset_version, partition_key, version) WHERE v.current
"""


class Creating:
    """Makes tasks in one database; any number may do so at once."""

    def __init__(self, database: Database, ledger: Ledger, payloads: PayloadStore, drafting: Drafting) -> None:
        self._database = database
        self._ledger = ledger
        self._payloads = payloads
        self._drafting = drafting

    async def create(self, scope: Scope, execution_id: int, facts: JobFacts, wanted: Sequence[WantedTask]) -> list[str]:
        """Create the tasks that do not exist yet, and return their ids."""
        if not wanted:
            return []
        async with self._database.transaction(scope) as connection:
            there = {row["task_id"] for row in await connection.fetch(_THERE, [task.task_id for task in wanted])}
            missing = [task for task in wanted if task.task_id not in there]
            done = await _done_before(connection, facts, missing)
        reach("task.before_create")
        made = await asyncio.gather(
            *(self._one(scope, execution_id, facts, task, done.get(task.task_id)) for task in missing)
        )
        reach("task.after_create")
        return [task.task_id for task, created in zip(missing, made, strict=True) if created]

    async def _one(
        self, scope: Scope, execution_id: int, facts: JobFacts, task: WantedTask, done_as: str | None
    ) -> bool:
        while True:
            append = await self.append(scope, execution_id, facts, task, done_as)
            try:
                await self._ledger.transact(Transition((append,)))
            except VersionConflict:
                return False  # somebody else was quicker with the same task
            except PayloadCollected:
                continue
            return True

    async def append(
        self,
        scope: Scope,
        execution_id: int,
        facts: JobFacts,
        task: WantedTask,
        done_as: str | None = None,
        *,
        sent: PayloadRef | None = None,
    ) -> Append:
        """Return the append that creates a task, which succeeds only once; `sent` starts one that reads nothing else."""
        stream = identity.task_stream(scope, task.task_id)
        inputs = [_input(one) for one in task.inputs]
        assert sent is None or not inputs
        ref = sent
        if len(orjson.dumps(inputs)) > INLINE_BYTES:
            parts = {one["alias"]: one.pop("parts") for one in inputs}
            ref = await self._payloads.store(scope, orjson.dumps(parts), JSON)
        meta = {
            "task_id": task.task_id,
            "job_id": facts.job_id,
            "dag_version_id": facts.dag_version_id,
            "dag": facts.dag,
            "job": facts.name,
            "generation": facts.generation,
            "dedupe_key": task.dedupe_key,
            "partition_key": task.partition_key,
            "runtime": facts.definition.runtime,
            "max_attempts": facts.max_attempts,
            "lease_seconds": facts.lease_seconds,
            "memo_key": task.memo_key,
        }
        about: dict[str, Any] = {"node_name": facts.name}
        created = self._drafting.one(
            scope, stream, execution_id, "task.created", stream.stream_id,
            meta=meta, context={"inputs": inputs}, payload_ref=ref, **about,
        )  # fmt: skip
        drafts: list[Draft] = [created]
        if done_as is not None:
            drafts.append(
                self._drafting.one(
                    scope, stream, execution_id, "task.skipped", stream.stream_id, meta={"as_task": done_as}, **about
                )
            )
        return Append(stream, drafts, 0)


async def _done_before(connection: Connection, facts: JobFacts, wanted: Iterable[WantedTask]) -> dict[str, str]:
    """Return, for tasks whose work was done before and whose outcome still stands, the task that did it."""
    # News are worked once each, whatever they hold, and a source looks at the world outside.
    if facts.view.strategy != "PerPartition":
        return {}
    asked = {task.memo_key: task.task_id for task in wanted}
    found: dict[str, str] = {}
    if asked:
        for row in await connection.fetch(_DONE, list(asked), facts.generation):
            task_id = asked[row["memo_key"]]
            if task_id not in found and await _stands(connection, orjson.loads(row["outputs"] or "[]")):
                found[task_id] = row["task_id"]
    return found


async def _stands(connection: Connection, outputs: list[dict[str, Any]]) -> bool:
    if not all("partition_key" in one for one in outputs):
        return False
    if not outputs:
        return True
    places = [(one["dataset_version"], one["partition_key"], one["version"]) for one in outputs]
    current = await connection.fetchval(_CURRENT, *(list(column) for column in zip(*places, strict=True)))
    return bool(current == len(places))


def _input(one: Any) -> dict[str, Any]:
    return {**msgspec.structs.asdict(one), "parts": [list(part) for part in one.parts]}
