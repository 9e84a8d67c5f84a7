"""The rows that the user's folds touched in one shard, by name: names go in, digests come out, to be held together.

A row belongs to one shard, since there is no order between shards. Each shard folded by itself cannot see that another
claims the same row; its digests let whoever gathers the shards see it.
"""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

_BYTES = 8


class Claims:
    """The names of rows that one shard touched."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()

    def noted(self, projection: str, row_id: str | None) -> str | None:
        """Note a row and return its id."""
        if row_id is not None:
            self._names.add((projection, row_id))
        return row_id

    def digests(self) -> bytes:
        """Return a digest of every name, one after another."""
        return b"".join(blake3(f"{name}\0{row_id}".encode()).digest(_BYTES) for name, row_id in self._names)


def contested(claims: Iterable[bytes]) -> bool:
    """Tell whether two shards seem to claim one row; digests so short may err once in a very long while."""
    seen: set[bytes] = set()
    for digests in claims:
        own = {digests[start : start + _BYTES] for start in range(0, len(digests), _BYTES)}
        if not seen.isdisjoint(own):
            return True
        seen |= own
    return False
