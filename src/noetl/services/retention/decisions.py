"""Which generations and versions of partitions go: facts and a policy go in, decisions with their reasons come out. Pure.

A version stays while one of these holds: it is the last of a generation that is used or young; a reader could ask for a
point of the promised days at which it was visible; a pin names it; an open task reads it; it was in use a moment ago.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from noetl.services.retention.facts import Facts, Generation, Held, Version
from noetl.services.retention.policy import Policy


class VersionFate(msgspec.Struct, frozen=True, kw_only=True):
    """A version and what becomes of it; `why` is what keeps it, or why nothing does."""

    version: Version
    kept: bool
    why: str


class GenerationFate(msgspec.Struct, frozen=True, kw_only=True):
    """A generation and what becomes of it: it stays, loses some versions, or goes whole."""

    generation: Generation
    usable: bool
    """Whether it may serve readers again; if not, it is retired or purged."""
    why: str
    versions: tuple[VersionFate, ...]

    @property
    def purged(self) -> bool:
        """Whether nothing of it stays."""
        return not self.usable and not any(fate.kept for fate in self.versions)

    @property
    def trimmed(self) -> tuple[Version, ...]:
        """The versions that go while others stay."""
        return () if self.purged else tuple(fate.version for fate in self.versions if not fate.kept)


def planned(facts: Facts, policy: Policy) -> list[GenerationFate]:
    """Decide about every generation."""
    spared = _newest(facts, policy.keep_generations)
    return [_fate(one, facts, policy, spared) for one in facts.generations]


def _newest(facts: Facts, count: int) -> frozenset[str]:
    """Return the unused generations that stay because few of their dataset are newer."""
    unused: dict[str, list[Generation]] = {}
    for one in facts.generations:
        if not one.uses and not one.retired:
            unused.setdefault(one.dataset_uuid, []).append(one)
    newest = [sorted(some, key=lambda one: (one.last_used_at, one.dataset_version))[::-1] for some in unused.values()]
    return frozenset(one.dataset_version for some in newest for one in some[:count])


def _fate(one: Generation, facts: Facts, policy: Policy, spared: frozenset[str]) -> GenerationFate:
    usable, why = _usable(one, facts.now, policy, spared)
    used_because = why if usable else None
    versions = tuple(_version_fate(one, version, facts, policy, used_because) for version in one.versions)
    return GenerationFate(generation=one, usable=usable, why=why, versions=versions)


def _usable(one: Generation, now: datetime, policy: Policy, spared: frozenset[str]) -> tuple[bool, str]:
    if one.uses:
        return True, ", ".join(one.uses)
    if one.retired:
        return False, "retired, and nothing keeps it any more"
    if policy.generation_days is None:
        return True, "unused generations are kept for ever"
    if one.dataset_version in spared:
        return True, f"one of the {policy.keep_generations} newest that are not used"
    age = now - one.last_used_at
    if age <= timedelta(days=policy.generation_days) + policy.grace:
        return True, f"unused for less than {policy.generation_days} d and the grace of {policy.grace_hours} h"
    if policy.as_of_days is None and one.served:
        return True, "readers had it, and every point of the past is promised"
    return False, f"unused for {age.days} d"


def _version_fate(
    one: Generation, version: Version, facts: Facts, policy: Policy, used_because: str | None
) -> VersionFate:
    for why in (
        used_because if version.superseded_at is None else None,
        _promised(one, version, facts.now, policy, usable=used_because is not None),
        _held(one, version, facts.held),
        _young(version, facts.now, policy),
    ):
        if why is not None:
            return VersionFate(version=version, kept=True, why=why)
    why = "superseded" if version.superseded_at is not None else "its generation is not used"
    return VersionFate(version=version, kept=False, why=why)


def _promised(one: Generation, version: Version, now: datetime, policy: Policy, *, usable: bool) -> str | None:
    """Say whether a reader could have seen the version within the promised days."""
    if policy.as_of_days is None:
        # What readers never had goes with its whole generation or not at all.
        return "every point of the past is promised" if one.served or usable else None
    since = now - timedelta(days=policy.as_of_days) - policy.grace
    for begun, ended in one.served:
        first = max(version.committed_at, begun, since)
        ends = [end for end in (version.superseded_at, ended) if end is not None]
        if all(first < end for end in ends):
            return f"within the promised {policy.as_of_days} d"
    return None


def _held(one: Generation, version: Version, held: Held) -> str | None:
    key = (one.dataset_version, version.partition_key, version.version)
    if key in held.pinned:
        return f"pinned by {held.pinned[key]}"
    return f"read by {held.read[key]}" if key in held.read else None


def _young(version: Version, now: datetime, policy: Policy) -> str | None:
    if version.superseded_at is not None and now - version.superseded_at <= policy.grace:
        return f"superseded less than {policy.grace_hours} h ago"
    return None
