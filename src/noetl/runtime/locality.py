"""Where this process is and how near to its inputs work is done, by the settings."""

from __future__ import annotations

import os

from noetl.dispatch.locality import Patience, Wish
from noetl.runtime.settings import Runtime, Settings


def process_locator(own: Runtime, role: str) -> str:
    """Return the locator of this process in a role, with as much of its place as is told."""
    place = "".join(f"/{name}/{value}" for name, value in (("region", own.region), ("zone", own.zone)) if value)
    return (
        f"noetl://tenant/{own.tenant_id}/org/{own.organization_id}/cluster/{own.cluster_id}{place}/node/{own.node_id}"
        f"/process/{os.getpid()}/{role}"
    )


def remote_name(own: Runtime) -> str:
    """Return the name under which a worker of this process works for a server: short, unless it has a place to tell."""
    if own.zone is None and own.region is None:
        return f"{own.node_id}/{os.getpid()}"
    return f"{process_locator(own, 'worker')}/{own.node_id}"


def patience_of(settings: Settings) -> Patience:
    """Return how long work is left to workers near its inputs."""
    scheduler = settings.runtime.scheduler
    return Patience(preference=scheduler.locality_preference, wait_seconds=scheduler.locality_wait_ms / 1000)


def wish_of(settings: Settings) -> Wish:
    """Return what the claims of this process's workers say."""
    own = settings.runtime
    return Wish(
        prefer_node=own.node_id,
        prefer_zone=own.zone,
        prefer_region=own.region,
        max_distance=own.scheduler.max_distance,
    )
