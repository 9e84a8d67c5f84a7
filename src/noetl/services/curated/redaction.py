"""The last step of a view, without a database: sums per group and organization go in, rows fit for an operator come out.

Groups that are too small, too few or too much of one tenant are withheld. What is withheld is itself held to the same
measure, since whoever knows a total could subtract the rest: further groups are withheld until all of it is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from blake3 import blake3

from noetl.services.curated.rules import HOUR, Bucket, Hash, Period, Size, Total
from noetl.services.curated.view import CuratedView, Minimum

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HASH_BYTES: Final = 12
_LAST: Final = 1_000_000
"""The place of a key without a value, after all others."""


class Key(NamedTuple):
    """A key of a group as it is told, and its place among the others."""

    order: int
    label: str
    is_missing: bool = False


@dataclass(frozen=True)
class Contribution:
    """What one organization adds to one group."""

    tenant_id: str
    organization_id: str
    keys: tuple[Any, ...]
    rows: int
    sums: tuple[float, ...]


@dataclass(frozen=True)
class Redacted:
    """Rows in the order of the view's columns, and whether there are groups that are not told."""

    rows: tuple[tuple[Any, ...], ...]
    withheld: bool


@dataclass
class _Group:
    """All that organizations add to one group."""

    organizations: set[tuple[str, str]] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)
    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, one: Contribution) -> None:
        self.organizations.add((one.tenant_id, one.organization_id))
        self.rows[one.tenant_id] += one.rows
        known = self.sums.setdefault(one.tenant_id, [0.0] * len(one.sums))
        self.sums[one.tenant_id] = [a + b for a, b in zip(known, one.sums, strict=True)]

    def add_all(self, other: _Group) -> None:
        self.organizations |= other.organizations
        self.rows += other.rows
        for tenant, sums in other.sums.items():
            known = self.sums.setdefault(tenant, [0.0] * len(sums))
            self.sums[tenant] = [a + b for a, b in zip(known, sums, strict=True)]

    def totals(self) -> list[float]:
        return [sum(column) for column in zip(*self.sums.values(), strict=True)]

    def is_safe(self, least: Minimum) -> bool:
        if len(self.organizations) < least.organizations or len(self.rows) < least.tenants:
            return False
        if self.rows.total() < least.rows or max(self.rows.values()) > least.share * self.rows.total():
            return False
        largest = [max(column) for column in zip(*self.sums.values(), strict=True)]
        return all(one <= least.share * total for one, total in zip(largest, self.totals(), strict=True) if total)


def redact(view: CuratedView, given: Iterable[Contribution], secret: bytes) -> Redacted:
    """Apply a view's rules and return what may be told."""
    groups: dict[tuple[Key, ...], _Group] = {}
    for one in _by_organization(view, given, secret):
        groups.setdefault(one.keys, _Group()).add(one)
    told = _tellable(groups, view.minimum)
    rows = tuple(_row(view, keys, groups[keys]) for keys in sorted(told))
    return Redacted(rows, withheld=len(told) < len(groups))


def _tellable(groups: dict[tuple[Key, ...], _Group], least: Minimum) -> set[tuple[Key, ...]]:
    told = {keys for keys, group in groups.items() if group.is_safe(least)}
    if len(told) == len(groups):
        return told
    hidden = _Group()
    for keys in groups.keys() - told:
        hidden.add_all(groups[keys])
    smallest_first = sorted(told, key=lambda keys: (groups[keys].rows.total(), keys))
    for keys in smallest_first:
        if hidden.is_safe(least):
            break
        told.discard(keys)
        hidden.add_all(groups[keys])
    return told


def _by_organization(view: CuratedView, given: Iterable[Contribution], secret: bytes) -> list[Contribution]:
    """Return what each organization adds to each group under its final keys."""
    engine_keys = [name for name in view.keys if name not in view.summed]
    merged: dict[tuple[str, str, tuple[Key, ...]], tuple[int, tuple[float, ...]]] = {}
    for one in given:
        keys = tuple(_key(view, name, value, secret) for name, value in zip(engine_keys, one.keys, strict=True))
        place = (one.tenant_id, one.organization_id, keys)
        rows, sums = merged.get(place, (0, (0.0,) * len(one.sums)))
        merged[place] = (rows + one.rows, tuple(a + b for a, b in zip(sums, one.sums, strict=True)))
    found = []
    for (tenant, organization, known), (rows, sums) in merged.items():
        by_name = dict(zip(engine_keys, known, strict=True))
        by_sum = dict(zip(view.summed, sums, strict=True))
        for name in view.keys:
            rule = view.rules[name]
            if isinstance(rule, Size):
                by_name[name] = _bucket(rule.edges, sum(edge <= by_sum[name] for edge in rule.edges))
        keys = tuple(by_name[name] for name in view.keys)
        totals = tuple(by_sum[name] for name in view.totals)
        found.append(Contribution(tenant, organization, keys, rows, totals))
    return found


def _key(view: CuratedView, name: str, value: Any, secret: bytes) -> Key:
    rule = view.rules[name]
    if value is None:
        return Key(_LAST, "", is_missing=True)
    if isinstance(rule, Period):
        return Key(0, _period(rule, int(value)))
    if isinstance(rule, Bucket):
        return _bucket(rule.edges, int(value))
    return Key(0, keyed(secret, name, str(value)) if isinstance(rule, Hash) else str(value))


def keyed(secret: bytes, name: str, value: str) -> str:
    """Return the digest of a field's value under the installation's secret."""
    key = blake3(secret, derive_key_context="noetl curated view, version 1").digest()
    return blake3(f"{name}\0{value}".encode("utf-8", "surrogatepass"), key=key).hexdigest(length=_HASH_BYTES)


def _period(rule: Period, number: int) -> str:
    moment = _EPOCH + timedelta(seconds=number * (HOUR if rule.unit == "hour" else 24 * HOUR))
    if rule.unit == "hour":
        return f"{moment:%Y-%m-%dT%H:00Z}"
    if rule.unit == "week":
        return f"{moment - timedelta(days=moment.weekday()):%Y-%m-%d}"
    return f"{moment:%Y-%m-%d}" if rule.unit == "day" else f"{moment:%Y-%m}"


def _bucket(edges: Sequence[int], place: int) -> Key:
    if place == 0:
        return Key(0, f"below {edges[0]}")
    last = place == len(edges)
    return Key(place, f"from {edges[-1]}" if last else f"{edges[place - 1]} to {edges[place]}")


def _row(view: CuratedView, keys: tuple[Key, ...], group: _Group) -> tuple[Any, ...]:
    totals = [
        _rounded(total, rule.digits)
        for total, name in zip(group.totals(), view.totals, strict=True)
        if isinstance(rule := view.rules[name], Total)
    ]
    return (
        *(None if key.is_missing else key.label for key in keys),
        _multiple(group.rows.total(), view.round_to),
        _multiple(len(group.organizations), view.round_to),
        *totals,
    )


def _multiple(number: int, of: int) -> int:
    return (number + of // 2) // of * of


def _rounded(number: float, digits: int) -> int:
    return int(float(f"{number:.{digits - 1}e}"))
