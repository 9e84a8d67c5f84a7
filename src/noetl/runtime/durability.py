"""What a deployment may lose, said in words wherever the settings are shown or taken up."""

from __future__ import annotations

from noetl.runtime.settings import Settings

LOSS_WINDOW = (
    "write path `stream`: an event counts as durable when NATS acknowledges it, which by default is before it is on disk; "
    "a power failure of the NATS servers can lose up to two minutes of acknowledged facts"
)
SYNCED = (
    "write path `stream`: an event counts as durable when NATS acknowledges it, synced to disk as the operator says"
)


def loss_window(settings: Settings, way: str) -> str | None:
    """Say what may be lost in a write path, where anything may."""
    if way != "stream":
        return None
    return SYNCED if settings.event_store.connection.sync_interval_always else LOSS_WINDOW
