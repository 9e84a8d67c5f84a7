"""Transitions of a data pipeline: a test names what matters to it, the rest is filled in soundly."""

from __future__ import annotations

import uuid
from typing import Any

from noetl.kernel.ledger.transition import Append, Fence, Transition
from noetl.model.event import Draft
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.executions import IDS, SCOPE, one, token


def named(name: str) -> str:
    """Return the id that stands for a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


class Piped:
    """A DAG `shop` of one job `clean`, its dataset, and tasks by name; every method gives a transition to send."""

    def __init__(self, scope: Scope = SCOPE, execution_id: int | None = None, dag: str = "shop") -> None:
        self.drafts = Drafts(scope, IDS.mint)
        self.scope, self.dag = scope, dag
        self.execution_id = execution_id or IDS.mint()
        self.generation = named(f"{dag}/g1")
        self.dataset, self.dataset_version = named(f"{dag}/clean/0"), named(f"{dag}/clean/0/g1")

    def event(self, stream_id: str, kind: str, meta: dict[str, Any], **fields: Any) -> Draft:
        stream = self.scope.stream(stream_id)
        return self.drafts.draft(stream, kind, self.execution_id, **{"node_name": "clean", "meta": meta, **fields})

    def of_dag(self, *kinds: tuple[str, dict[str, Any], dict[str, Any]]) -> Transition:
        drafts = [self.event(f"dag/{self.dag}", kind, meta, **fields) for kind, meta, fields in kinds]
        return Transition((Append(drafts[0].stream, drafts),))

    def requested(self, kind: str = "deploy") -> Transition:
        meta = {"path": f"dag/{self.dag}", "kind": kind, "dag": self.dag, "dag_version_id": self.version(1)}
        return one(self.drafts.execution(self.execution_id, "execution.requested", meta=meta))

    def version(self, number: int) -> str:
        return named(f"{self.dag}/v{number}")

    def job_id(self, number: int = 1) -> str:
        return named(f"{self.dag}/v{number}/clean")

    def deployed(self, number: int = 1, name: str | None = None, **job: Any) -> Transition:
        version = {"dag_version_id": self.version(number), "dag": self.dag}
        digests = {"bundle_digest": "ab" * 32, "code_digest": "", "yaml_hash": f"y{number}"}
        pointers = {
            "pointers": {self.dataset: self.dataset_version},
            "publish": {"orders": self.dataset},
            "built": ["clean"],
        }
        meta = {
            **version,
            "job_id": self.job_id(number),
            "generation": self.generation,
            "job_hash": "h1",
            "runtime": "spark",
            "operator": "spark_sql",
            "activation": "reactive",
            "update_strategy": "replace",
            "execution_strategy": "PerPartition",
            "max_attempts": 3,
            "lease_seconds": 120.0,
            "timeout_seconds": None,
            "max_concurrency": 2,
            **job,
        }
        inputs = [{"alias": "o", "dataset_uuid": named("raw"), "trigger": True, "where": {}, "partition_by": ["day"]}]
        context = {"definition": {"name": "clean", "sql": "SELECT 1"}, "inputs": inputs, "outputs": [self.dataset]}
        dataset = {
            "dataset_uuid": self.dataset,
            "name": name or f"{self.dag}.clean.0",
            "dag": self.dag,
            "job": "clean",
            "output": 0,
            "published": name is not None,
        }
        build = {
            "dataset_uuid": self.dataset,
            "dataset_version": self.dataset_version,
            "generation": self.generation,
            "config_hash": "h1",
            "storage_location": f"{self.scope.tenant_id}/datasets/",
        }
        return self.of_dag(
            (
                "dag.version_created",
                {**version, **digests},
                {"context": pointers, "payload_ref": self.drafts.payload()},
            ),
            ("job.registered", meta, {"context": context}),
            ("dataset.registered", dataset, {}),
            ("dataset.generation_created", build, {"context": {"partition_by": ["day"]}}),
        )

    def moved(self, kind: str, number: int = 1, previous: int | None = None, **fields: Any) -> Transition:
        meta: dict[str, Any] = {"dag_version_id": self.version(number)}
        if kind in ("dag.activated", "dag.rolled_back"):
            meta["previous"] = None if previous is None else self.version(previous)
        return self.of_dag((kind, meta, fields))

    def task_id(self, name: str) -> str:
        return named(f"{self.generation}/{name}")

    def created(self, name: str, number: int = 1, **fields: Any) -> Transition:
        meta = {
            "task_id": self.task_id(name),
            "job_id": self.job_id(number),
            "dag_version_id": self.version(number),
            "dag": self.dag,
            "job": "clean",
            "generation": self.generation,
            "dedupe_key": name,
            "partition_key": f"day={name}",
            "runtime": "spark",
            "max_attempts": 3,
            "lease_seconds": 120.0,
            "memo_key": f"memo {name}",
        }
        parts = [[f"day={name}", 3, 0], ["day=x", 1, 1]]
        inputs = [{"alias": "o", "dataset_uuid": named("raw"), "dataset_version": named("raw/g"), "parts": parts}]
        draft = self.event(
            f"task/{self.task_id(name)}", "task.created", meta, **{"context": {"inputs": inputs}, **fields}
        )
        return Transition((Append(draft.stream, [draft], 0),))

    def task(
        self, name: str, kind: str, *fences: Fence, meta: dict[str, Any] | None = None, **fields: Any
    ) -> Transition:
        return one(self.event(f"task/{self.task_id(name)}", kind, {"attempt": 1, **(meta or {})}, **fields), *fences)

    def claimed(
        self,
        name: str,
        held: str | None = None,
        attempt: int = 1,
        seconds: float = 120.0,
        room: int | None = None,
        **of: Any,
    ) -> Transition:
        lease = {"attempt": attempt, "worker": "w1", "lease_token": held or token(), "lease_seconds": seconds}
        fences = [] if room is None else [self.room(room, **of)]
        return self.task(name, "task.claimed", self.fence(name, attempt - 1, None, "free"), *fences, meta=lease)

    def fence(self, name: str, attempt: int = 1, held: str | None = None, mode: Any = "held") -> Fence:
        return Fence("task", 0, self.task_id(name), attempt, held, mode)

    def room(self, limit: int, number: int = 1) -> Fence:
        return Fence("job", 0, self.job_id(number), limit, None, "room")

    def partition(self, key: str, kind: str = "partition.committed", version: int = 1, **fields: Any) -> Transition:
        meta = {
            "dataset_uuid": self.dataset,
            "dataset_version": self.dataset_version,
            "partition_key": key,
            "version": version,
            "task_id": self.task_id(key),
        }
        if kind == "partition.committed":
            meta |= {
                "attempt": 1,
                "rows": 5,
                "bytes": 100,
                "files": 1,
                "schema_hash": "s",
                "content_digest": "c",
                "update": "replace",
            }
            fields.setdefault("payload_ref", self.drafts.payload())
        return one(self.event(f"partition/{named(self.dataset_version + '/' + key)}", kind, meta, **fields))

    def schema(self, change: str, *columns: str) -> Transition:
        meta = {
            "dataset_uuid": self.dataset,
            "dataset_version": self.dataset_version,
            "schema_hash": "s",
            "change": change,
        }
        context = {"schema": [[name, "string", True] for name in columns]}
        return one(self.event(f"dataset/{self.dataset_version}", "dataset.schema_set", meta, context=context))

    def state(self, key: str, state: Any) -> Transition:
        meta = {"generation": self.generation, "state_key": key}
        return one(self.event(f"state/{self.generation}", "job.state_saved", meta, context={"state": state}))

    def cursor(self, key: str, version: int) -> dict[str, Any]:
        return {
            "dataset_uuid": named("raw"),
            "dataset_version": named("raw/g"),
            "consumer": self.generation,
            "partition_key": key,
            "version": version,
        }

    def people(self, *told: tuple[str, dict[str, Any]], **fields: Any) -> Transition:
        drafts = [self.event("people", kind, meta, node_name=None, **fields) for kind, meta in told]
        return Transition((Append(drafts[0].stream, drafts),))
