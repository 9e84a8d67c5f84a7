"""Where this process is and how near to its inputs work is done, by the settings."""

from __future__ import annotations

import os

from noetl.engine.plan.locality import Patience, Wish
from noetl.errors import ConfigError
from noetl.model.envelope.field import NAME_LIMIT
from noetl.model.locator import Locator
from noetl.runtime.settings.declaration import Runtime, Settings


def process_locator(own: Runtime, role: str) -> str:
    """Return the locator of this process in a role, with as much of its place as is told; its id is the node's name."""
    own_place = (own.cluster_id, own.region, own.zone, own.node_id, str(os.getpid()))
    text = str(Locator(own.tenant_id, own.organization_id, *own_place, kind=role, path=(own.node_id,)))
    if len(text) > NAME_LIMIT:
        raise ConfigError(
            f"the locator of this process has {len(text)} characters, and events take {NAME_LIMIT}",
            hint="shorten runtime.node_id, region, zone, cluster_id, tenant_id or organization_id",
        )
    return text


def remote_name(own: Runtime) -> str:
    """Return the name under which a worker of this process works for a server: short, unless it has a place to tell."""
    if own.zone is None and own.region is None:
        return f"{own.node_id}/{os.getpid()}"
    return process_locator(own, "worker")


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
