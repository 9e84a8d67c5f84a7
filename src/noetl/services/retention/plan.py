"""What a run of retention will do in one organization, and why: values only, and how they add up for people."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from noetl.model.stream import Scope
from noetl.services.retention.facts import Generation
from noetl.services.retention.policy import Policy

Kind = Literal[
    "generations", "versions", "staging", "tasks", "outbox", "slots", "queries", "payloads", "bundles", "archives"
]
KINDS: Final[tuple[Kind, ...]] = (
    "generations", "versions", "staging", "tasks", "outbox", "slots", "queries", "payloads", "bundles", "archives",
)  # fmt: skip
"""In the order a run does them."""
DATA: Final = frozenset({"generations", "versions"})
"""What readers could have asked for."""
ROWS: Final[tuple[Kind, ...]] = ("tasks", "outbox", "slots", "queries")
"""Rows of history that nobody decides by."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Things of one kind that share their fate and its reason."""

    kind: Kind
    subject: str
    action: Literal["remove", "keep"]
    why: str
    items: int
    bytes: int = 0


class Letting(msgspec.Struct, frozen=True, kw_only=True):
    """A generation that cannot serve again: purged whole, or retired while some versions stay."""

    generation: Generation
    purged: bool
    reason: str
    served_until: datetime | None
    items: int
    bytes: int


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of a generation's partitions that go, and the files that no other version names."""

    generation: Generation
    versions: tuple[tuple[str, int], ...]
    files: dict[str, int]
    """Bytes by path."""
    reason: str


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """Data that were let go by an event while their files still lie there."""

    dataset_version: str
    location: str
    versions: tuple[tuple[str, int], ...] | None
    """None for a whole generation."""
    files: dict[str, int]


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Files below a generation's prefix that nobody can ever name."""

    location: str
    files: dict[str, int]


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of history up to an age."""

    kind: Kind
    until: datetime
    items: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as it was decided at one moment; it is carried out exactly, or another is made."""

    scope: Scope
    made_at: datetime
    policy: Policy
    kinds: tuple[Kind, ...]
    pins_version: int
    dag_versions: dict[str, int]
    lines: tuple[Line, ...]
    lettings: tuple[Letting, ...] = ()
    trims: tuple[Trim, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    bundles: tuple[str, ...] = ()

    @property
    def removes_data(self) -> bool:
        """Whether something goes that readers could have asked for."""
        return bool(self.lettings or self.trims)

    @property
    def removes(self) -> bool:
        """Whether anything goes."""
        return any(line.action == "remove" and line.items for line in self.lines)

    def removed(self, kind: Kind) -> tuple[int, int]:
        """Return how many things of a kind go, and their bytes."""
        gone = [line for line in self.lines if line.kind == kind and line.action == "remove"]
        return sum(line.items for line in gone), sum(line.bytes for line in gone)


def summed(lines: list[Line]) -> tuple[Line, ...]:
    """Add up lines that differ in nothing but their numbers, and put what goes before what stays."""
    sums: dict[tuple[Kind, str, str, str], tuple[int, int]] = {}
    for line in lines:
        key = (line.kind, line.subject, line.action, line.why)
        items, size = sums.get(key, (0, 0))
        sums[key] = items + line.items, size + line.bytes
    ordered = sorted(sums, key=lambda key: (KINDS.index(key[0]), key[2] == "keep", key[1], key[3]))
    return tuple(
        Line(
            kind=key[0],
            subject=key[1],
            action="remove" if key[2] == "remove" else "keep",
            why=key[3],
            items=items,
            bytes=size,
        )
        for key in ordered
        for items, size in (sums[key],)
    )
