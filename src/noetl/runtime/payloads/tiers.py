"""The tiers of payloads that one process has: settings go in, tiers come out, shared by all stores of the process.

A tier that cannot be opened is left out and counted: nothing that runs depends on one.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noetl.errors import Unavailable
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.keys import TenantKeys
from noetl.kernel.payloads.lru import ByteLru
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.kernel.payloads.shared_memory.memfd import BrokeredMemory, is_available
from noetl.kernel.payloads.shared_memory.node import Busy, NodeDirectory
from noetl.kernel.payloads.shared_memory.port import NodeMemory
from noetl.kernel.payloads.shared_memory.shm import SharedMemory, memory_directory
from noetl.kernel.payloads.tiers import TieredPayloads, Tiers
from noetl.runtime.settings.declaration import Settings

MIB: Final = 1 << 20
GIB: Final = 1 << 30
FIGURES: Final = Figures()
"""What all tiers of this process did."""


@dataclass(frozen=True)
class Fabric:
    """The parts of the tiers that all stores of a process share."""

    node: NodeDirectory | None
    ipc: NodeMemory | None
    pid: int

    def tell(self) -> None:
        """Show the figures of this process to others, now and then."""
        if self.node is not None:
            self.node.tell(FIGURES)

    def close(self) -> None:
        """Remove the regions of this process and leave the node."""
        if self.ipc is not None:
            self.ipc.close()
        if self.node is not None:
            self.node.tell(FIGURES, now=True)
            self.node.close()

    def abandon(self) -> None:
        """Let go of what a forked child has of its parent's."""
        if isinstance(self.ipc, SharedMemory):
            self.ipc.abandon()
        elif self.ipc is not None:
            self.ipc.close()
        if self.node is not None:
            self.node.close()


_FABRICS: dict[tuple[object, ...], Fabric] = {}
_MEMORIES: dict[tuple[str, int], ByteLru] = {}
_DISKS: dict[tuple[Path, int], DiskCache] = {}


def shared_directory(settings: Settings) -> Path:
    """Return where the regions of this node are."""
    return settings.payload_store.cache.tier_15_directory or memory_directory()


def broker_socket(settings: Settings) -> Path:
    """Return where the node broker listens."""
    return (settings.payload_store.cache.tier_15_broker or settings.runtime.home / "node-broker.sock").absolute()


def open_fabric(settings: Settings) -> Fabric:
    """Return this process's part of the node, opened and swept on first use."""
    cache, node_id = settings.payload_store.cache, settings.runtime.node_id
    key = (node_id, shared_directory(settings), cache.model_dump_json(), broker_socket(settings))
    if key not in _FABRICS:
        _FABRICS[key] = _opened(settings)
    return _FABRICS[key]


def opened_fabrics() -> list[Fabric]:
    """Return the nodes this process is on."""
    return list(_FABRICS.values())


def _opened(settings: Settings) -> Fabric:
    cache, node_id = settings.payload_store.cache, settings.runtime.node_id
    node: NodeDirectory | None = None
    try:
        node = NodeDirectory(shared_directory(settings), node_id)
    except (OSError, Busy):
        FIGURES.passed("ipc", "error")
    ipc: NodeMemory | None = None
    if cache.tier_15_node_budget_mb and cache.tier_15_carrier == "memfd" and is_available():
        ipc = BrokeredMemory(broker_socket(settings), node_id, cache.tier_15_grace_seconds, FIGURES)
    elif cache.tier_15_node_budget_mb and node is not None:
        ipc = SharedMemory(node, cache.tier_15_node_budget_mb * MIB, cache.tier_15_grace_seconds, FIGURES)
        ipc.sweep()
    return Fabric(node, ipc, os.getpid())


def sweep_node(settings: Settings) -> int:
    """Remove the regions that dead processes of this node left, and return how many those were."""
    node = NodeDirectory(shared_directory(settings), settings.runtime.node_id)
    try:
        return node.sweep()
    except Busy:
        raise Unavailable("another process holds the node's lock", hint="try again") from None
    finally:
        node.close()


def with_tiers(settings: Settings, durable: ObjectPayloadStore, keys: TenantKeys | None) -> TieredPayloads:
    """Put the tiers the settings ask for before a durable store.

    The disk is left out where the durable store is a disk already, and where payloads are encrypted: erasing a tenant
    must leave no plain bytes on any disk.
    """
    cache, chosen = settings.payload_store.cache, settings.payload_store
    fabric, realm = open_fabric(settings), durable.bucket.uri("")
    disk = None
    if cache.tier_2_disk_gb and chosen.backend != "local" and keys is None:
        place = (settings.cache_directory.absolute() / "payloads", cache.tier_2_disk_gb * GIB)
        disk = _DISKS.setdefault(place, DiskCache(*place, FIGURES))
    memory = None
    if cache.tier_1_memory_mb:
        size = cache.tier_1_memory_mb * MIB
        memory = _MEMORIES.setdefault((realm, size), ByteLru(size))
    tiers = Tiers(
        figures=FIGURES,
        memory=memory,
        ipc=fabric.ipc,
        disk=disk,
        realm=realm,
        verify_ipc=cache.verify_ipc,
        after=fabric.tell,
    )
    return TieredPayloads(durable, tiers, keys=keys)


def close_fabrics() -> None:
    """Remove the regions of this process and leave every node it is on."""
    for fabric in _FABRICS.values():
        if fabric.pid == os.getpid():
            with suppress(OSError, ValueError):
                fabric.close()
    _FABRICS.clear()
    for disk in _DISKS.values():
        disk.close()
    _DISKS.clear()
    _MEMORIES.clear()


def _after_fork() -> None:
    for fabric in _FABRICS.values():
        with suppress(OSError, ValueError):
            fabric.abandon()
    _FABRICS.clear()
    _DISKS.clear()
    _MEMORIES.clear()


atexit.register(close_fabrics)
os.register_at_fork(after_in_child=_after_fork)
