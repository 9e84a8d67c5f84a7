"""Which shard a stream belongs to: names go in, a number below the shard count comes out, the same one for ever.

Positions are counted per shard, so a change here would tear every stored cursor and mark apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from blake3 import blake3

SHARD_COUNT: Final = 16


@lru_cache(maxsize=16_384)
def shard_of(tenant: str, organization: str, key: str, count: int = SHARD_COUNT) -> int:
    """Return the shard of an execution (key: its id in decimal) or of a stream that outlives one (key: its id)."""
    if count < 1:
        raise ValueError(f"there must be at least one shard, not {count}")
    digest = blake3(f"{tenant}\x1f{organization}\x1f{key}".encode()).digest(length=8)
    return int.from_bytes(digest, "little") % count
