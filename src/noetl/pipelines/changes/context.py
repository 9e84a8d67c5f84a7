"""What every change of data uses: how a dataset is found, a run begins, and partitions are built again whole."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.request_keys import request_key
from noetl.errors import InputError
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import ALL
from noetl.model.stream import Scope, execution_stream
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.catalog.datasets.rows import Dataset
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_tasks import emitted_again, wanted
from noetl.pipelines.plan.wanted_values import WantedTask
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.jobs import JobFacts, Output
from noetl.pipelines.tasks.routing.creation import Creating
from noetl.pipelines.tasks.routing.inputs import read_inputs, read_worked

_PRODUCER: Final = """
SELECT j.job_id::text AS job_id
FROM noetl.dag_current_version AS c JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id)
WHERE c.dag = $1 AND j.name = $2
"""
_STATES: Final = """
SELECT generation::text AS generation, version FROM noetl.operator_state
WHERE generation = ANY ($1::uuid[]) AND state_key = 'default' AND state NOT IN ('{}', 'null')
"""


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset and the job of the version that serves which builds it."""

    dataset: Dataset
    facts: JobFacts
    output: Output

    @property
    def is_source(self) -> bool:
        """Whether the job looks at the world outside."""
        return self.facts.definition.activation == "source"


@dataclass(frozen=True)
class Means:
    """The parts that changes of all organizations of one database use."""

    database: Database
    ledger: Ledger
    payloads: PayloadStore
    datasets: Datasets
    engine: TaskEngine
    mint: Callable[[], int]
    drafting: Drafting

    @property
    def creating(self) -> Creating:
        """What makes tasks."""
        return Creating(self.database, self.ledger, self.payloads, self.drafting)

    async def located(self, scope: Scope, name: str) -> Located:
        """Find a dataset that a version serves, and the job that builds it."""
        dataset = await self.datasets.find(scope, name)
        async with self.database.transaction(scope) as connection:
            job_id = await connection.fetchval(_PRODUCER, dataset.dag, dataset.job)
            if job_id is None:
                raise InputError(
                    f"no version of DAG {dataset.dag} serves {name}", hint=f"noetl dag activate {dataset.dag}"
                )
            facts = await self.engine.jobs.get(scope, job_id, connection)
        output = next(one for one in facts.outputs if one.dataset_uuid == dataset.dataset_uuid)
        return Located(dataset=dataset, facts=facts, output=output)

    def requested(
        self, scope: Scope, execution_id: int, facts: JobFacts, by: str, *, key: str | None = None, **cause: Any
    ) -> Append:
        """Return the append that begins a run; with a `key`, it stands for this run from then on."""
        stream = execution_stream(scope, execution_id)
        meta = {
            "path": f"dag/{facts.dag}",
            "kind": "emission",
            "dag": facts.dag,
            "dag_version_id": facts.dag_version_id,
            "requested_by": by,
            **cause,
        }
        draft = self.drafting.one(
            scope, stream, execution_id, "execution.requested", stream.stream_id, meta=meta,
            idempotency_key=f"{execution_id}/requested" if key is None else request_key(key),
        )  # fmt: skip
        return Append(stream, [draft], 0)

    async def forgotten(
        self, connection: Connection, scope: Scope, execution_id: int, jobs: list[JobFacts]
    ) -> dict[str, Append]:
        """Return, by generation, the appends by which operators that keep state begin anew."""
        rows = await connection.fetch(_STATES, [facts.generation for facts in jobs])
        names = {facts.generation: facts.name for facts in jobs}
        found = {}
        for row in rows:
            generation = row["generation"]
            stream = identity.state_stream(scope, generation)
            draft = self.drafting.one(
                scope, stream, execution_id, "job.state_saved", stream.stream_id, node_name=names[generation],
                meta={"generation": generation, "state_key": "default"}, context={"state": {}},
            )  # fmt: skip
            found[generation] = Append(stream, [draft], row["version"])
        return found

    def recorded(self, scope: Scope, execution_id: int) -> None:
        """Let what follows from a change begin at once in this process."""
        self.engine.outbox.news.touch()
        self.engine.runs.note(scope, execution_id)


async def tasks_again(
    connection: Connection, facts: JobFacts, keys: Collection[str] | None, execution_id: int
) -> list[WantedTask]:
    """Return the tasks that build these partitions of a job for a run, or all of them; none where inputs have nothing."""
    job = facts.view
    if facts.definition.activation == "source":
        inputs = await read_inputs(connection, facts, None) if job.inputs else {}
        return [emitted_again(job, inputs, execution_id, key) for key in sorted(keys or {ALL})]
    inputs = await read_inputs(connection, facts, keys)
    known = await read_worked(connection, facts, inputs, keys)
    return wanted(job, inputs, only=keys, known=known, invalidation=str(execution_id))


def worked_as(facts: JobFacts, keys: Collection[str]) -> frozenset[str]:
    """Return the units a job's partitions are worked in: each by itself, or all at once."""
    return frozenset(keys) if facts.view.is_split else frozenset({ALL})
