"""The rows of an organization as facts for a plan, all as they are at one moment. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.ids import organization_root_id
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.switches import SWITCHES, Switch, serving_before
from noetl.pipelines.tasks.actions import UNUSED
from noetl.services.retention.facts import Generation, Version

Span = tuple[datetime, datetime | None]

_GENERATIONS: Final = """
SELECT g.dataset_version::text AS dataset_version, g.dataset_uuid::text AS dataset_uuid, d.name AS dataset,
       d.producer_dag AS dag, g.generation::text AS generation, g.storage_location AS location, g.created_at,
       r.dataset_version IS NOT NULL AS retired
FROM noetl.dataset_version AS g JOIN noetl.dataset AS d USING (tenant_id, organization_id, dataset_uuid)
LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
WHERE r.purged_at IS NULL ORDER BY d.name, g.created_at, 1
"""
_POINTERS: Final = """
SELECT p.dataset_version::text AS dataset_version, v.dag_version_id::text AS dag_version_id, v.dag, v.status, v.created_at
FROM noetl.dag_version_dataset AS p JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
"""
_SWITCHED: Final = """
SELECT substring(stream_id FROM 5) AS dag, event_type, meta ->> 'dag_version_id' AS dag_version_id, ingest_time
FROM noetl.event WHERE execution_id = $1 AND event_type = ANY ($2) AND starts_with(stream_id, 'dag/')
ORDER BY stream_id, stream_version
"""
_VERSIONS: Final = """
SELECT v.* FROM (
    SELECT dataset_version::text AS dataset_version, partition_key, version, committed_at, dropped, bytes, files,
           lead(committed_at) OVER (PARTITION BY dataset_version, partition_key ORDER BY version) AS superseded_at
    FROM noetl.partition_version
) AS v LEFT JOIN noetl.trimmed_version AS t ON t.dataset_version::text = v.dataset_version
    AND t.partition_key = v.partition_key AND t.version = v.version
WHERE NOT v.dropped AND t.version IS NULL ORDER BY 1, 2, 3
"""
_OPEN: Final = """
SELECT t.task_id::text AS task_id, t.generation::text AS generation, t.dag, t.job, t.status, t.started_at, t.inputs,
       t.inputs_ref, t.available_at IS NOT NULL AS open
FROM noetl.task AS t WHERE t.available_at IS NOT NULL OR t.status = 'Canceled' AND t.error = $1
"""
_READ: Final = """
SELECT i.task_id::text AS task_id, i.input_dataset_version::text, i.input_partition_key, i.input_version
FROM noetl.task AS t JOIN noetl.task_input AS i USING (tenant_id, organization_id, task_id)
WHERE t.available_at IS NOT NULL OR t.status = 'Canceled' AND t.error = $1
"""


class OpenTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that waits, runs or will be tried again; one that is not open comes back if its generation does."""

    task_id: str
    generation: str
    label: str
    open: bool
    running_since: datetime | None
    inputs: tuple[tuple[str, str], ...]
    """Alias and generation of each input."""
    inputs_ref: PayloadRef | None
    """Where the parts of the inputs stand that are too many for the row."""


async def read_open_tasks(connection: Connection) -> list[OpenTask]:
    """Return all tasks that have not ended, and those that a rollback brings back."""
    return [
        OpenTask(
            task_id=row["task_id"],
            generation=row["generation"],
            label=f"task {row['task_id'][:8]} of {row['dag']}.{row['job']}",
            open=row["open"],
            running_since=row["started_at"] if row["status"] == "Running" else None,
            inputs=tuple((one["alias"], one["dataset_version"]) for one in orjson.loads(row["inputs"])),
            inputs_ref=None
            if row["inputs_ref"] is None
            else msgspec.convert(orjson.loads(row["inputs_ref"]), PayloadRef),
        )
        for row in await connection.fetch(_OPEN, UNUSED)
    ]


async def read_inputs(connection: Connection) -> list[tuple[str, str, str, int]]:
    """Return what open tasks read: task, generation, partition and version, as far as rows say it."""
    return [tuple(row) for row in await connection.fetch(_READ, UNUSED)]


async def read_generations(
    connection: Connection, scope: Scope, now: datetime, tasks: Iterable[OpenTask]
) -> tuple[Generation, ...]:
    """Return every generation that is not purged, with what it is used for."""
    spans, targets = _serving(await _switches(connection, scope))
    pointing: dict[str, list[Any]] = {}
    for row in await connection.fetch(_POINTERS):
        pointing.setdefault(row["dataset_version"], []).append(row)
    versions: dict[str, list[Version]] = {}
    for row in await connection.fetch(_VERSIONS):
        fields = {name: row[name] for name in Version.__struct_fields__}
        versions.setdefault(row["dataset_version"], []).append(Version(**fields))
    working: dict[str, int] = {}
    for task in (one for one in tasks if one.open):
        working[task.generation] = working.get(task.generation, 0) + 1
    return tuple(
        _generation(row, pointing.get(row["dataset_version"], ()), versions, spans, targets, working, now)
        for row in await connection.fetch(_GENERATIONS)
    )


async def _switches(connection: Connection, scope: Scope) -> dict[str, list[tuple[Switch, datetime]]]:
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    found: dict[str, list[tuple[Switch, datetime]]] = {}
    for row in await connection.fetch(_SWITCHED, root, list(SWITCHES)):
        switch = Switch(row["event_type"], row["dag_version_id"])
        found.setdefault(row["dag"], []).append((switch, row["ingest_time"]))
    return found


def _serving(switches: dict[str, list[tuple[Switch, datetime]]]) -> tuple[dict[str, list[Span]], set[str]]:
    """Return when each version of a DAG served readers, and the versions that going back leads to."""
    spans: dict[str, list[Span]] = {}
    targets = set()
    for of_dag in switches.values():
        ends = [at for _, at in of_dag[1:]]
        for (switch, begun), ended in zip(of_dag, [*ends, None], strict=True):
            spans.setdefault(switch.dag_version_id, []).append((begun, ended))
        before = serving_before([switch for switch, _ in of_dag])
        if before is not None:
            targets.add(before)
    return spans, targets


def _generation(
    row: Any,
    pointing: Sequence[Any],
    versions: dict[str, list[Version]],
    spans: dict[str, list[Span]],
    targets: set[str],
    working: dict[str, int],
    now: datetime,
) -> Generation:
    own = versions.get(row["dataset_version"], [])
    found = [span for version in pointing for span in spans.get(version["dag_version_id"], ())]
    served = sorted(found, key=lambda span: span[0])
    statuses = {version["status"] for version in pointing}
    open_tasks = working.get(row["generation"], 0)
    uses = [
        *(["current"] if "active" in statuses else []),
        *(["candidate"] if statuses & {"building", "ready"} else []),
        *(["rollback target"] if any(version["dag_version_id"] in targets for version in pointing) else []),
        *([f"{open_tasks} open task{'s' if open_tasks > 1 else ''}"] if open_tasks else []),
    ]
    used = [row["created_at"], *(version["created_at"] for version in pointing)]
    used += [now if ended is None else ended for _, ended in served]
    used += [version.committed_at for version in own]
    fields = {name: row[name] for name in _COPIED}
    return Generation(**fields, uses=tuple(uses), served=tuple(served), last_used_at=max(used), versions=tuple(own))


_COPIED: Final = (
    "dataset_version",
    "dataset_uuid",
    "dataset",
    "dag",
    "generation",
    "location",
    "created_at",
    "retired",
)
