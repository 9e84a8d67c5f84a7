"""All routes, in the order they are matched and documented."""

from __future__ import annotations

from noetl.api.endpoint import Endpoint
from noetl.api.routes import (
    alerts,
    catalog,
    changes,
    commands,
    credentials,
    curated,
    dags,
    datasets,
    events,
    execute,
    executions,
    frames,
    health,
    hooks,
    leases,
    lineage,
    outbox,
    people,
    query,
    rendering,
    replay,
    results,
    schedules,
    sources,
    stages,
    task_leases,
    tasks,
    tokens,
    variables,
    workers,
)


def endpoints() -> list[Endpoint]:
    """Return every declared route."""
    nouns = (
        execute, executions, events, catalog, credentials, tokens, commands, stages, frames, leases, workers,
        dags, sources, hooks, datasets, lineage, changes, query, curated, task_leases, tasks, outbox, alerts, schedules, people, replay, variables, rendering, results, health,
    )  # fmt: skip
    return [endpoint for noun in nouns for endpoint in noun.routes.endpoints]
