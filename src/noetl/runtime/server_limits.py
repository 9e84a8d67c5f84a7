"""What connections may take: settings go in, the limits of whatever listens in this process come out."""

from __future__ import annotations

from noetl.api.connections.limits import ConnectionLimits
from noetl.runtime.settings.declaration import Settings


def limits_of(settings: Settings) -> ConnectionLimits:
    """Return the limits of the settings; a body may at least be as large as webhooks take them."""
    chosen = settings.server.limits.model_dump()
    return ConnectionLimits(**chosen | {"body_bytes": max(chosen["body_bytes"], settings.sources.hook_max_bytes)})
