"""All routes, in the order they are matched and documented."""

from __future__ import annotations

from noetl.api.endpoint import Endpoint
from noetl.api.routes.data import changes, curated, dags, datasets, hooks, lineage, query, sources, tasks
from noetl.api.routes.executions import catalog, events, executions, rendering, replay, results, start, variables
from noetl.api.routes.organization import alerts, credentials, health, people, schedules, tokens
from noetl.api.routes.workers import commands, frames, leases, outbox, stages, task_leases, workers


def endpoints() -> list[Endpoint]:
    """Return every declared route."""
    nouns = (
        start, executions, events, catalog, credentials, tokens, commands, stages, frames, leases, workers,
        dags, sources, hooks, datasets, lineage, changes, query, curated, task_leases, tasks, outbox, alerts, schedules, people, replay, variables, rendering, results, health,
    )  # fmt: skip
    return [endpoint for noun in nouns for endpoint in noun.routes.endpoints]
