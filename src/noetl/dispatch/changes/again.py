"""The tasks by which partitions of a job are built again: whole, of what its inputs hold now, whatever was done before."""

from __future__ import annotations

from collections.abc import Collection

from noetl.dispatch.tasks.jobs import JobFacts
from noetl.dispatch.tasks.reading import read_inputs, read_worked
from noetl.ledger.database import Connection
from noetl.model.dataset import ALL
from noetl.plan.wanted import emitted_again, wanted
from noetl.plan.wanted_values import WantedTask


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
