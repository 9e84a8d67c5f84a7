"""A DAG `shop` in a test's database: versions are deployed for real, what workers would commit is said by the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from noetl.errors import VersionConflict
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.dataset import MANIFEST_TYPE, Field, FileEntry, Manifest
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.bundles import Bundle, read_bundle
from noetl.pipelines.catalog.dags.registry import Dags, Deployed
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.plan import identity
from noetl.testing.samples.drafts import PRODUCER, Drafts

SCOPE = Scope("acme", "sales")
IDS = SnowflakeGenerator(7, lambda: time.time_ns() // 1_000_000)

RAW = "SELECT 1 AS id, 'eu' AS region"
SHOP = """
name: {name}
jobs:
  - name: raw
    sql: {raw}
    partition_by: [region]
  - name: clean
    inputs: [raw]
    sql: {clean}
publish:
  {publish}: clean
"""


class Shop:
    """DAGs and datasets of one organization, with the hands to move them."""

    def __init__(
        self,
        database: Database,
        ledger: PostgresLedger,
        payloads: MemoryPayloadStore,
        home: Path,
        scope: Scope = SCOPE,
        mint: Callable[[], int] = IDS.mint,
    ) -> None:
        self.scope, self.ledger, self.payloads, self._home = scope, ledger, payloads, home
        self.dags = Dags(database, ledger, payloads, mint, PRODUCER)
        self.datasets = Datasets(database, payloads, History(database, ledger, payloads))
        self.drafts = Drafts(scope, mint)

    def bundle(self, text: str | None = None, files: dict[str, str] | None = None, **fields: str) -> Bundle:
        """Read a bundle of a DAG's YAML: that of the shop, unless told."""
        home = self._home / uuid4().hex
        home.mkdir()
        given = {"name": "shop", "raw": RAW, "clean": "SELECT id, region FROM raw", "publish": "orders", **fields}
        (home / "dag.yaml").write_text(text or SHOP.format(**given))
        for name, content in (files or {}).items():
            (home / name).write_text(content)
        return read_bundle(home / "dag.yaml")

    async def deploy(self, bundle: Bundle | None = None, **fields: str) -> Deployed:
        return await self.dags.deploy(self.scope, bundle or self.bundle(**fields), "ann")

    async def ready(self, bundle: Bundle | None = None, **fields: str) -> Deployed:
        """Deploy a version and have it built."""
        deployed = await self.deploy(bundle, **fields)
        if deployed.created:
            for job in deployed.plan.jobs:
                # What another version under way builds too is built by it.
                with suppress(VersionConflict):
                    if job.builds and not job.inputs:
                        await self.task(deployed, job.name, identity.build_key(job.generation), "task.completed")
        await self.dags.mark_ready(self.scope, deployed.plan.dag, deployed.dag_version_id, by="tests")
        return deployed

    async def serve(self, bundle: Bundle | None = None, **fields: str) -> Deployed:
        """Deploy a version, have it built and let it serve readers."""
        deployed = await self.ready(bundle, **fields)
        await self.dags.activate(self.scope, deployed.plan.dag, deployed.dag_version_id, by="tests")
        return deployed

    async def commit(
        self, deployed: Deployed, job: str, key: str = "all", *, version: int = 1, digest: str = "ab", rows: int = 10
    ) -> str:
        """Commit a partition of a job's output and return its generation."""
        dataset = next(one for one in deployed.plan.datasets if one.job == job)
        entry = FileEntry(path=f"{key}/x.parquet", bytes=100, rows=rows, sha256=digest * 32, added=version)
        manifest = Manifest(
            dataset_version=dataset.new,
            partition_key=key,
            version=version,
            schema=(Field("id", "int"),),
            files=(entry,),
        )
        ref = await self.payloads.store(self.scope, msgspec.json.encode(manifest), MANIFEST_TYPE, rows=rows)
        meta = self._part(dataset.dataset_uuid, dataset.new, key, version) | {
            "attempt": 1,
            "rows": rows,
            "bytes": 100,
            "files": 1,
            "schema_hash": manifest.schema_hash,
            "content_digest": manifest.content_digest,
            "update": "replace",
        }
        await self._partition(deployed, job, dataset.new, key, version, "partition.committed", meta, payload_ref=ref)
        return dataset.new

    async def drop(self, deployed: Deployed, job: str, key: str, version: int) -> None:
        dataset = next(one for one in deployed.plan.datasets if one.job == job)
        meta = self._part(dataset.dataset_uuid, dataset.new, key, version)
        await self._partition(deployed, job, dataset.new, key, version, "partition.dropped", meta)

    async def set_schema(self, deployed: Deployed, job: str, version: int, *columns: str) -> None:
        dataset = next(one for one in deployed.plan.datasets if one.job == job)
        stream = identity.dataset_stream(self.scope, dataset.new)
        meta = {
            "dataset_uuid": dataset.dataset_uuid,
            "dataset_version": dataset.new,
            "schema_hash": "-".join(columns),
            "change": "first" if version == 1 else "evolved",
        }
        context = {"schema": [[column, "int", True] for column in columns]}
        draft = self.drafts.draft(
            stream, "dataset.schema_set", deployed.execution_id, node_name=job, meta=meta, context=context
        )
        await self.ledger.transact(Transition((Append(stream, [draft], version - 1),)))

    async def task(self, deployed: Deployed, job: str, key: str, *ends: str, partition: str = "all") -> None:
        """Create a task of a job, and let these events follow."""
        planned = next(one for one in deployed.plan.jobs if one.name == job)
        task_id = identity.task_id(planned.generation, key)
        stream = identity.task_stream(self.scope, task_id)
        meta = {
            "task_id": task_id,
            "job_id": identity.job_id(deployed.dag_version_id, job),
            "dag_version_id": deployed.dag_version_id,
            "dag": deployed.plan.dag,
            "job": job,
            "generation": planned.generation,
            "dedupe_key": key,
            "partition_key": partition,
            "runtime": "spark",
            "max_attempts": 3,
            "lease_seconds": 120.0,
            "memo_key": key,
        }
        told: list[tuple[str, dict[str, Any], str | None]] = [("task.created", meta, None)]
        told += [(kind, {"attempt": 1}, "it broke" if "fail" in kind else None) for kind in ends]
        drafts = [
            self.drafts.draft(stream, kind, deployed.execution_id, node_name=job, meta=given, error=error)
            for kind, given, error in told
        ]
        await self.ledger.transact(Transition((Append(stream, drafts, 0),)))

    def _part(self, dataset_uuid: str, dataset_version: str, key: str, version: int) -> dict[str, Any]:
        return {
            "dataset_uuid": dataset_uuid,
            "dataset_version": dataset_version,
            "partition_key": key,
            "version": version,
            "task_id": identity.task_id(dataset_version, f"{key}/{version}"),
        }

    async def _partition(
        self,
        deployed: Deployed,
        job: str,
        dataset_version: str,
        key: str,
        version: int,
        kind: str,
        meta: dict[str, Any],
        **fields: Any,
    ) -> None:
        stream = identity.partition_stream(self.scope, dataset_version, key)
        draft = self.drafts.draft(stream, kind, deployed.execution_id, node_name=job, meta=meta, **fields)
        await self.ledger.transact(Transition((Append(stream, [draft], version - 1),)))
