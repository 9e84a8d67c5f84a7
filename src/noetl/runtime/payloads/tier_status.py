"""What the payload tiers of this node hold and did, over all its processes, living and gone."""

from __future__ import annotations

from typing import Any

from noetl.kernel.payloads.figures import TIERS, Told
from noetl.kernel.payloads.shared_memory.memfd import BrokeredMemory
from noetl.kernel.payloads.shared_memory.node import node_path, told_in
from noetl.runtime.payloads.tiers import GIB, MIB, Fabric, open_fabric, shared_directory
from noetl.runtime.settings.declaration import Settings


def node_status(settings: Settings) -> dict[str, Any]:
    """Return the figures of the node as plain values."""
    cache, node_id = settings.payload_store.cache, settings.runtime.node_id
    told = told_in(node_path(shared_directory(settings), node_id) / "figures")
    fabric = open_fabric(settings)
    return {
        "node": node_id,
        "carrier": _carrier(fabric),
        "directory": str(shared_directory(settings)),
        "limits": {
            "memory": cache.tier_1_memory_mb * MIB,
            "ipc": cache.tier_15_node_budget_mb * MIB,
            "disk": cache.tier_2_disk_gb * GIB,
        },
        "tier15_bytes_in_use": 0 if fabric.ipc is None else fabric.ipc.in_use(),
        "tier15_regions": len(fabric.node.regions()) if fabric.node is not None else 0,
        "tier15_budget_exhaustion_total": told.exhausted,
        "tier_hits_total": {tier: sum(served.get(tier, 0) for served in told.reads.values()) for tier in TIERS},
        "noetl_payload_bytes_total": {
            "read": {tier: told.read_bytes.get(tier, 0) for tier in TIERS},
            "written": {tier: told.written.get(tier, 0) for tier in TIERS},
        },
        "tier_passed_total": told.passed,
        "consumers": [_consumer(told, name) for name in sorted(told.reads)],
    }


def _consumer(told: Told, name: str) -> dict[str, Any]:
    served = told.reads[name]
    return {
        "consumer": name,
        "reads": sum(served.values()),
        "hits": {tier: served.get(tier, 0) for tier in TIERS},
        "tier15_hit_ratio": round(told.ratio(name, ["ipc"]), 4),
        "near_hit_ratio": round(told.ratio(name, TIERS[:-1]), 4),
    }


def _carrier(fabric: Fabric) -> str:
    if fabric.ipc is None:
        return "off"
    return "memfd" if isinstance(fabric.ipc, BrokeredMemory) else "posix"
