"""A deployed DAG with a task engine on a fresh database, and workers' answers made up by hand: no lake is needed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noetl.engine.dispatch.polling import Backoff
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.dataset import Field, FileEntry
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite, TaskGrant, TaskReport
from noetl.pipelines.catalog.dags.bundles import read_bundle
from noetl.pipelines.catalog.dags.registry import Dags, Deployed
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.local import LocalTasks
from noetl.pipelines.tasks.rows import TaskRow
from noetl.pipelines.tasks.run_states import Run
from noetl.testing.samples.drafts import PRODUCER

ORDERS = (Field("day", "string"), Field("amount", "int"))
OPERATORS = {"made_up"}

DAG = """
name: shop
jobs:
  - name: orders
    operator: made_up
    runtime: dispatcher
    partition_by: [day]
  - name: clean
    operator: made_up
    runtime: dispatcher
    partition_by: [day]
    inputs: [orders]
  - name: totals
    operator: made_up
    runtime: dispatcher
    inputs: [clean]
publish: [totals]
"""


class TaskTestbed:
    """One organization's engine, and what a test asks of it."""

    def __init__(
        self,
        database: Database,
        ledger: PostgresLedger,
        home: Path,
        *,
        scope: Scope | None = None,
        payloads: MemoryPayloadStore | None = None,
        node: int = 1,
        **options: Any,
    ) -> None:
        self.scope = scope or Scope("default", "default")
        self.database = database
        self.ledger = ledger
        self.payloads = payloads or MemoryPayloadStore()
        self.home = home
        ids = SnowflakeGenerator(node, lambda: int(time.time() * 1000))
        self.engine = TaskEngine(
            database, ledger, self.payloads, ids.mint, ids.mint_many, PRODUCER, every_seconds=0.05,
            **{"retry": Backoff(0.0, 0.0), "redeliver": Backoff(0.0, 0.0), **options},
        )  # fmt: skip
        self.engine.runs.before_end = self._before_end
        self.dags = Dags(database, ledger, self.payloads, ids.mint, PRODUCER)

    @property
    def tasks(self) -> LocalTasks:
        """The tasks of the test's organization."""
        return self.engine.tasks(self.scope)

    async def _before_end(self, scope: Scope, run: Run, error: str | None) -> None:
        if run.kind == "deploy" and run.dag_version_id is not None:
            if error is None:
                await self.dags.mark_ready(scope, run.dag, run.dag_version_id, by="tests")
            else:
                await self.dags.mark_failed(scope, run.dag, run.dag_version_id, error, by="tests")

    async def deploy(self, text: str = DAG) -> Deployed:
        """Deploy a DAG and start its build."""
        self.home.mkdir(parents=True, exist_ok=True)
        file = self.home / "dag.yaml"
        file.write_text(text)
        deployed = await self.dags.deploy(self.scope, read_bundle(file, operators=OPERATORS), "test")
        if deployed.created:
            await self.engine.runs.build(self.scope, deployed.execution_id, deployed.dag_version_id)
        return deployed

    async def work(self, days: Sequence[str] = ("1", "2"), *, salt: str = "") -> list[str]:
        """Do all that waits, with routing in between, and return the jobs in the order they were worked."""
        worked = []
        while True:
            await self.drain()
            grants = await self.tasks.claim("worker", ("dispatcher",), 100, 0)
            if not grants:
                return worked
            for grant in grants:
                worked.append(f"{grant.job}/{grant.partition_key}")
                await self.tasks.complete(grant, self.report(grant, days, salt=salt))

    async def drain(self) -> None:
        """Deliver everything that is due."""
        while await self.engine.outbox.drain():
            pass

    async def built(self, text: str = DAG, **options: Any) -> Deployed:
        """Deploy, build and activate a DAG."""
        deployed = await self.deploy(text)
        await self.work(**options)
        ended = await self.engine.runs.finished(self.scope, deployed.execution_id, 10)
        assert ended.status == "completed", ended
        await self.dags.activate(self.scope, deployed.plan.dag, deployed.dag_version_id, by="tests")
        return deployed

    def report(self, grant: TaskGrant, days: Sequence[str] = ("1", "2"), *, salt: str = "") -> TaskReport:
        """Return what a worker would report: one file per partition that depends on what was read and on the salt."""
        read = [part.manifest.sha256 for one in grant.inputs for part in one.parts]
        writes = [
            written(grant, target.output, key, "/".join([grant.job, salt, *sorted(read)]))
            for target in grant.targets
            for key in self.keys(grant, days)
        ]
        return TaskReport(status="ok", writes=tuple(writes))

    def keys(self, grant: TaskGrant, days: Sequence[str]) -> list[str]:
        """Return the partitions a task writes."""
        if grant.targets and grant.targets[0].partition_by and grant.partition_key == "all":
            return [f"day={day}" for day in days]
        return [grant.partition_key]

    async def claim(self, job: str | None = None, want: int = 100) -> list[TaskGrant]:
        """Claim tasks as a worker would, without waiting; after routing what is due."""
        await self.drain()
        like = None
        if job is not None:
            found = await self.rows(
                "SELECT job_id::text FROM noetl.task WHERE job = $1 AND available_at IS NOT NULL LIMIT 1", job
            )
            if not found:
                return []
            like = found[0][0]
        return await self.tasks.claim("worker", ("dispatcher",), want, 0, like=like)

    async def task(self, task_id: str) -> TaskRow:
        """Return a task as it stands."""
        return await self.engine.by_hand.show(self.scope, task_id)

    async def expire(self, task_id: str) -> None:
        """Let a lease run out now."""
        async with self.database.transaction(self.scope) as connection:
            await connection.execute(
                "UPDATE noetl.task SET lease_until = clock_timestamp() - interval '1 s' WHERE task_id = $1", task_id
            )

    async def statuses(self) -> dict[str, str]:
        """Return the tasks' states by job and partition, the newest of each."""
        rows = await self.rows("SELECT job, partition_key, status FROM noetl.task ORDER BY created_event_id")
        return {f"{row['job']}/{row['partition_key']}": row["status"] for row in rows}

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Read rows of the organization."""
        async with self.database.transaction(self.scope) as connection:
            return list(await connection.fetch(query, *values))

    async def current(self, job: str) -> dict[str, int]:
        """Return the current partitions of a job's dataset in the version that serves, with their versions."""
        rows = await self.rows(
            "SELECT v.partition_key, v.version FROM noetl.dag_current_version AS c"
            " JOIN noetl.dag_version_dataset AS p USING (dag_version_id)"
            " JOIN noetl.dataset AS d ON d.dataset_uuid = p.dataset_uuid"
            " JOIN noetl.partition_version AS v ON v.dataset_version = p.dataset_version"
            " WHERE d.producer_job = $1 AND v.current AND NOT v.dropped ORDER BY 1",
            job,
        )
        return {row["partition_key"]: row["version"] for row in rows}


def written(
    grant: TaskGrant, output: int, key: str, text: str, *, schema: tuple[Field, ...] = ORDERS, base: int | None = None
) -> PartitionWrite:
    """Return a partition as an attempt wrote it, as if it were a file with this text."""
    target = next(one for one in grant.targets if one.output == output)
    standing = next((part.version for part in target.parts if part.partition_key == key), 0)
    lease = grant.lease
    entry = FileEntry(
        path=f"{target.location}{key}/commit={lease.task_id}-{lease.attempt}/part-0.parquet",
        bytes=len(text),
        rows=1,
        sha256=hashlib.sha256(f"{key} {text}".encode()).hexdigest(),
    )
    return PartitionWrite(
        output=output,
        partition_key=key,
        schema=schema,
        files=(entry,),
        base_version=standing if base is None else base,
    )
