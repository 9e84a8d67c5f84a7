"""The tiers that may stand before a durable payload store, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from noetl.payloads.disk import DiskCache
from noetl.payloads.figures import Figures
from noetl.payloads.lru import ByteLru
from noetl.payloads.node_memory import NodeMemory


@dataclass(frozen=True)
class Tiers:
    """What stands before the durable store; a tier that is None is turned off."""

    figures: Figures = field(default_factory=Figures)
    memory: ByteLru | None = None
    ipc: NodeMemory | None = None
    disk: DiskCache | None = None
    realm: str = ""
    """Which durable store this is: two projects of one node never read each other's tiers."""
    verify_ipc: bool = False
    """Whether bytes in memory are proven by their digest at every read."""
    after: Callable[[], None] = lambda: None
    """Called now and then, so that figures are told."""
