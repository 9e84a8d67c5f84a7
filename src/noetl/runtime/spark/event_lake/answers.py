"""The worker's side of programs over the event lake: answers what they ask, out of the ledger and under their leases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.dataset import FileEntry
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite, TaskGrant
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import Streamed
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.spark.event_lake.definition import JOB, mark_of

_DAYS: Final = """
SELECT min(e.ingest_time AT TIME ZONE 'UTC')::date::text AS first, max(e.ingest_time AT TIME ZONE 'UTC')::date::text AS last
FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS w (shard, first, last) CROSS JOIN LATERAL (
    (SELECT ingest_time FROM noetl.event WHERE shard = w.shard AND position > w.first AND position <= w.last
     ORDER BY position LIMIT 1)
    UNION ALL
    (SELECT ingest_time FROM noetl.event WHERE shard = w.shard AND position > w.first AND position <= w.last
     ORDER BY position DESC LIMIT 1)
) AS e
"""

Told = Callable[[dict[str, Any]], None]
"""Told how far a program has come."""


class LakeDesk:
    """Answers one program; attempts that it leaves open are given up by `close`."""

    def __init__(
        self,
        scope: Scope,
        database: Database,
        datasets: Datasets,
        streamed: Streamed,
        jobs: Mapping[str, JobFacts],
        told: Told = lambda progress: None,
    ) -> None:
        self._scope = scope
        self._database = database
        self._datasets = datasets
        self._streamed = streamed
        self._jobs = jobs
        self._told = told
        self._open: dict[str, TaskGrant] = {}
        self._answers: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "next": self._next,
            "begin": self._begin,
            "commit": self._commit,
            "give_up": self._give_up,
            "state": self._state,
            "stored": self._stored,
            "told": self._tell,
        }

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer one question; a NoetlError is told to the program."""
        return await self._answers[question["ask"]](question)

    async def close(self) -> None:
        """Give up what the program began and did not end."""
        for grant in list(self._open.values()):
            await self._streamed.give_up(grant, "the program that wrote it has ended")
        self._open.clear()

    async def _next(self, question: dict[str, Any]) -> dict[str, Any]:
        after = mark_of(await self._streamed.state(self._job(JOB)))
        # What is in the lake already is cut off: a batch never takes it back in any shard.
        upto = after.merge(Mark.parse(question["upto"]))
        if not await self._streamed.has_news(after, upto):
            return {"after": None, "upto": upto.token()}
        return {"after": after.token(), "upto": upto.token(), "day": await self._day(after, upto)}

    async def _day(self, after: Mark, upto: Mark) -> str | None:
        """Return the day of all events in a range, if it is one: ingest times never run backwards within a shard."""
        pairs = enumerate(zip(after.positions, upto.positions, strict=True))
        ranges = [(shard, first, last) for shard, (first, last) in pairs if last > first]
        async with self._database.transaction(self._scope) as connection:
            row = await connection.fetchrow(_DAYS, *(list(column) for column in zip(*ranges, strict=True)))
        return None if row is None or row["first"] != row["last"] else row["first"]

    async def _begin(self, question: dict[str, Any]) -> dict[str, Any]:
        grant = await self._streamed.begin(self._job(question["job"]), question["key"])
        self._open[grant.lease.task_id] = grant
        target = msgspec.structs.replace(grant.targets[0], parts=())
        return {
            "task_id": grant.lease.task_id,
            "attempt": grant.lease.attempt,
            "target": msgspec.to_builtins(target),
            "state": grant.operator_state,
        }

    async def _commit(self, question: dict[str, Any]) -> dict[str, Any]:
        grant = self._taken(question)
        await self._streamed.commit(
            grant,
            msgspec.convert(question["writes"], list[PartitionWrite]),
            question["state"],
            dropped=[(output, key) for output, key in question["dropped"]],
            metrics=question["metrics"],
            rewrites=question["rewrites"],
        )
        return {}

    async def _give_up(self, question: dict[str, Any]) -> dict[str, Any]:
        await self._streamed.give_up(self._taken(question), question["error"])
        return {}

    async def _state(self, question: dict[str, Any]) -> dict[str, Any]:
        return {"state": await self._streamed.state(self._job(question["job"]))}

    async def _stored(self, question: dict[str, Any]) -> dict[str, Any]:
        job, wanted = self._job(question["job"]), question["partitions"]
        (output,) = job.outputs
        # Before the files are looked up: one that is committed in between is in them, and the state is seen as old.
        state = await self._streamed.state(job)
        parts = await self._datasets.partitions(self._scope, output.dataset_version)
        chosen = [part for part in parts if wanted is None or part.partition_key in wanted]
        manifests = await self._datasets.manifests(self._scope, chosen)
        files: dict[str, tuple[FileEntry, ...]] = {one.partition_key: one.files for one in manifests}
        columns = await self._datasets.schema(self._scope, output.dataset_version)
        return {"columns": msgspec.to_builtins(columns), "files": msgspec.to_builtins(files), "state": state}

    async def _tell(self, question: dict[str, Any]) -> dict[str, Any]:
        self._told({name: value for name, value in question.items() if name != "ask"})
        return {}

    def _job(self, name: str) -> JobFacts:
        found = self._jobs.get(name)
        if found is None:
            raise NotFound(f"the event lake has no job {name}")
        return found

    def _taken(self, question: dict[str, Any]) -> TaskGrant:
        grant = self._open.pop(question["task_id"], None)
        if grant is None:
            raise NotFound(f"no attempt at task {question['task_id']} is under way")
        return grant
