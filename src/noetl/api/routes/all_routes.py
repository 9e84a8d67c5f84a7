"""All routes, in the order they are matched and documented."""

from __future__ import annotations

from noetl.api.endpoint import Endpoint
from noetl.api.routes import (
    catalog,
    commands,
    credentials,
    events,
    execute,
    executions,
    frames,
    health,
    leases,
    replay,
    results,
    stages,
    tokens,
    variables,
    workers,
)


def endpoints() -> list[Endpoint]:
    """Return every declared route."""
    nouns = (
        execute, executions, events, catalog, credentials, tokens, commands, stages, frames, leases, workers,
        replay, variables, results, health,
    )  # fmt: skip
    return [endpoint for noun in nouns for endpoint in noun.routes.endpoints]
