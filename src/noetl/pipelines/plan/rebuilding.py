"""Whether a task can build a lost partition anew: how a job writes and what starts it go in, why it cannot comes out."""

from __future__ import annotations

from typing import Final

BY_HAND: Final = "restore the file from a copy, at its path: its bytes are proven, and then it is read again"
_NEVER_AGAIN: Final = frozenset({"always_on", "webhook"})


def cannot_build_anew(job: str, update_strategy: str | None, source: str | None) -> str | None:
    """Say why no task of a job can build one of its partitions from its inputs alone; None where one can."""
    if source in _NEVER_AGAIN:
        return f"the {source} source {job} cannot be asked for a partition again"
    if update_strategy == "append":
        return f"{job} appends to what is there, so that it cannot build a partition anew"
    return None
