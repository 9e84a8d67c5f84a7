"""What stands, as far as retention decides by it: generations with their versions, and who needs them. Values only."""

from __future__ import annotations

from datetime import datetime

import msgspec

VersionKey = tuple[str, str, int]
"""A generation of a dataset, a partition of it, and its version."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A partition at one of its versions; `superseded_at` is None for the last one."""

    partition_key: str
    version: int
    committed_at: datetime
    superseded_at: datetime | None = None
    bytes: int = 0
    files: int = 0


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One build of a dataset that is not purged, and what it is used for."""

    dataset_version: str
    dataset_uuid: str
    dataset: str
    dag: str
    generation: str
    location: str
    created_at: datetime
    uses: tuple[str, ...] = ()
    """Why its last versions stay whatever their age: `current`, `candidate`, `rollback target`, or open tasks."""
    served: tuple[tuple[datetime, datetime | None], ...] = ()
    """When readers had it; the last span is open while they do."""
    last_used_at: datetime
    """When it was needed last: readers had it, or a version that points to it was deployed."""
    retired: bool = False
    """Whether it cannot serve any more already."""
    versions: tuple[Version, ...] = ()
    """Those that have files and are not trimmed."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Versions somebody needs by name: who, by version."""

    pinned: dict[VersionKey, str] = {}
    read: dict[VersionKey, str] = {}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan for data is made from."""

    now: datetime
    generations: tuple[Generation, ...]
    held: Held = Held()
