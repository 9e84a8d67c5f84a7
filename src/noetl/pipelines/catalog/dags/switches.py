"""What has to be known to let another version of a DAG serve readers, or to tell who reads a change. Only reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import orjson

from noetl.errors import InputError
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.rows import JOB, DagVersion, JobRow, job_of
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.deploy.values import StandingDataset

SWITCHES: Final = ("dag.activated", "dag.rolled_back")

_SWITCHES = (
    "SELECT event_type, meta FROM noetl.known_event WHERE execution_id = $1 AND stream_id = $2 AND event_type = ANY ($3)"
    " ORDER BY stream_version"
)
_RELEASED = """
SELECT DISTINCT j.generation::text FROM noetl.job AS j
WHERE j.dag_version_id = $2 AND NOT EXISTS (
    SELECT FROM noetl.job AS k JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
    WHERE k.generation = j.generation
      AND (k.dag_version_id = $1 OR (v.status IN ('building', 'ready', 'active') AND k.dag_version_id <> $2)))
ORDER BY 1
"""
# What a version under way reads of another DAG is what that DAG serves; of its own, what its pointers say.
_READERS = f"""
WITH served AS (
    SELECT d.producer_dag, EXISTS (
        SELECT FROM noetl.dag_current_version AS c
        JOIN noetl.dag_version_dataset AS p USING (tenant_id, organization_id, dag_version_id)
        WHERE c.dag = d.producer_dag AND p.dataset_uuid = d.dataset_uuid AND p.dataset_version = $2::uuid) AS now
    FROM noetl.dataset AS d WHERE d.dataset_uuid = $1::uuid
)
SELECT DISTINCT ON (j.generation) {JOB}
FROM served JOIN noetl.job AS j ON $1::uuid = ANY (j.input_datasets)
JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
WHERE EXISTS (SELECT FROM jsonb_array_elements(j.inputs) AS i
              WHERE (i ->> 'dataset_uuid')::uuid = $1::uuid AND (i ->> 'trigger')::boolean)
  AND (served.now AND v.status = 'active'
       OR v.status IN ('building', 'ready') AND v.built ? j.name
          AND CASE WHEN v.dag = served.producer_dag
                   THEN EXISTS (SELECT FROM noetl.dag_version_dataset AS p WHERE p.dag_version_id = v.dag_version_id
                                AND p.dataset_uuid = $1::uuid AND p.dataset_version = $2::uuid)
                   ELSE served.now END)
ORDER BY j.generation, (v.status = 'active') DESC, v.created_at DESC
"""  # noqa: S608 - constants


_LET_GO = """
SELECT d.name, r.retired_at FROM noetl.dag_version_dataset AS p
JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
JOIN noetl.dataset AS d ON d.dataset_uuid = p.dataset_uuid WHERE p.dag_version_id = $1 ORDER BY d.name
"""


class Switch(msgspec.Struct, frozen=True):
    """One time that another version came to serve readers."""

    kind: str
    dag_version_id: str


async def activations(connection: Connection, scope: Scope, dag: str) -> list[Switch]:
    """Return every switch of a DAG, the first one first."""
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    rows = await connection.fetch(_SWITCHES, root, identity.dag_stream(scope, dag).stream_id, list(SWITCHES))
    return [Switch(row["event_type"], orjson.loads(row["meta"])["dag_version_id"]) for row in rows]


def serving_before(switches: Sequence[Switch]) -> str | None:
    """Return the version that going back leads to; what was gone back from is not returned to."""
    steps: list[str] = []
    for switch in switches:
        if switch.kind == "dag.rolled_back" and switch.dag_version_id in steps:
            while steps[-1] != switch.dag_version_id:
                steps.pop()
        else:
            steps.append(switch.dag_version_id)
    return steps[-2] if len(steps) > 1 else None


async def released_by(connection: Connection, coming: str, going: str | None) -> tuple[str, ...]:
    """Return the generations of the version that goes which no other version under way or in use has."""
    if going is None:
        return ()
    return tuple(row[0] for row in await connection.fetch(_RELEASED, coming, going))


async def check_kept(connection: Connection, version: DagVersion) -> None:
    """Refuse a version whose data were let go, all or some of them."""
    gone = await connection.fetch(_LET_GO, version.dag_version_id)
    if gone:
        names = ", ".join(row["name"] for row in gone)
        raise InputError(
            f"version {version.dag_version_id} of DAG {version.dag} cannot serve readers again: retention let go of"
            f" {names} on {gone[0]['retired_at']:%Y-%m-%d}",
            hint="deploy its files again: what is gone is built anew",
        )


async def readers_of(connection: Connection, dataset_uuid: str, dataset_version: str) -> list[JobRow]:
    """Return the jobs that a change in this generation may start, one for each generation of theirs."""
    return [job_of(row) for row in await connection.fetch(_READERS, dataset_uuid, dataset_version)]


def check_activatable(version: DagVersion, datasets: Collection[StandingDataset], obstacles: Collection[str]) -> None:
    """Refuse a version that is not built whole, or whose names others have by now; say why."""
    name = f"version {version.dag_version_id} of DAG {version.dag}"
    if version.ready_at is None:
        why = f"its build failed: {version.error}" if version.status == "failed" else "; ".join(obstacles)
        raise InputError(
            f"{name} is not ready to be activated: {why or 'nobody has marked it as ready yet'}",
            hint=f"`noetl dag status {version.dag}` shows what is missing, `noetl dag ready {version.dag}` marks it",
        )
    for one in datasets:
        if one.dag != version.dag and one.name in version.publish:
            raise InputError(f"{name} publishes {one.name}, which belongs to job {one.job} of DAG {one.dag} by now")
