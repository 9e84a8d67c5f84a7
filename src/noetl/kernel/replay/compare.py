"""Compares two sets of rows in bounded memory: rows go in from both sides, in any order, and the differing ones come out.

A first pass sums rows into buckets by their names. Only rows of buckets whose sums differ are looked at in a second
pass, so that millions of equal rows are never held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

from noetl.kernel.projections.field_witness import Lost
from noetl.kernel.projections.folds.checksum import Sums, Tally, bucket
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.kernel.projections.stores.by_type import DEFAULT
from noetl.kernel.projections.stores.port import StoredRow
from noetl.kernel.replay.report import Compared, Difference
from noetl.model.broken_stream import BrokenStream

LOOKED_INTO: Final = 64
"""Differing buckets a second pass looks into; more would only add to what is known to be wrong."""
SHOWN: Final = 10
"""Differences reported of each projection."""


def compared(expected: Sums, found: Sums, store: str = DEFAULT) -> list[Compared]:
    """Return the sums of both sides by projection of a store."""
    differing = {projection for projection, _ in unequal(expected, found)}
    return [
        Compared(
            projection=name,
            expected_rows=expected.tallies.get(name, Tally()).rows,
            found_rows=found.tallies.get(name, Tally()).rows,
            expected=expected.tallies.get(name, Tally()).hex(),
            found=found.tallies.get(name, Tally()).hex(),
            equal=name not in differing,
            store=store,
        )
        for name in sorted(expected.tallies.keys() | found.tallies.keys())
    ]


def unequal(expected: Sums, found: Sums) -> list[tuple[str, int]]:
    """Return the buckets whose sums differ."""
    places = sorted(expected.buckets.keys() | found.buckets.keys())
    return [place for place in places if expected.buckets.get(place, 0) != found.buckets.get(place, 0)]


class Suspects:
    """The rows of differing buckets, from both sides."""

    def __init__(self, places: list[tuple[str, int]]) -> None:
        self._places = frozenset(places[:LOOKED_INTO])
        self._expected: dict[RowKey, FoldedRow] = {}
        self._found: dict[RowKey, FoldedRow] = {}

    def expect(self, folded: FoldedRow) -> None:
        """Take a row folded from the ledger."""
        if (folded.key.projection, bucket(folded.key.row_id)) in self._places:
            self._expected[folded.key] = folded

    def find(self, folded: FoldedRow) -> None:
        """Take a stored row."""
        if (folded.key.projection, bucket(folded.key.row_id)) in self._places:
            self._found[folded.key] = folded

    def differences(self) -> list[Difference]:
        """Return the first differences of each projection, by row id."""
        shown: dict[str, list[Difference]] = {}
        for key in sorted(self._expected.keys() | self._found.keys()):
            of_projection = shown.setdefault(key.projection, [])
            if len(of_projection) < SHOWN:
                of_projection += _row_differences(key, self._expected.get(key), self._found.get(key))
        return [difference for differences in shown.values() for difference in differences[:SHOWN]]


def _row_differences(key: RowKey, expected: FoldedRow | None, found: FoldedRow | None) -> Iterator[Difference]:
    if expected is None or found is None:
        yield _difference(key, "row", _summary(expected), _summary(found))
        return
    for name in ("version", "execution_id", "shard", "first_position", "last_position"):
        if getattr(expected, name) != getattr(found, name):
            yield _difference(key, name, getattr(expected, name), getattr(found, name))
    for path, should, is_ in _fields(expected.row, found.row, "row"):
        yield _difference(key, path, should, is_)


def _fields(expected: Any, found: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Go down to the fields that differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted(expected.keys() | found.keys()):
            yield from _fields(expected.get(name), found.get(name), f"{path}.{name}")
    elif type(expected) is not type(found) or expected != found:
        # 1 and 1.0 are one number in canonical JSON, while true is another value.
        if {type(expected), type(found)} == {int, float} and expected == found:
            return
        yield path, expected, found


def _difference(key: RowKey, field: str, expected: Any, found: Any) -> Difference:
    return Difference(where=key.projection, id=key.row_id, field=field, expected=expected, found=found)


def _summary(folded: FoldedRow | None) -> Any:
    return None if folded is None else folded.row


def broken_differences(broken: Iterable[BrokenStream]) -> list[Difference]:
    """Say of streams that stand still that they do; each is a difference, whatever its rows are."""
    return [
        Difference(
            where="stream",
            id=one.stream_id,
            field=f"event {one.event_id} at position {one.position} of shard {one.shard}",
            expected=f"folded, with the fields under {one.sha256}" if one.sha256 else "folded",
            found=f"broken, {one.code}: {one.message}",
        )
        for one in broken
    ]


def lost_differences(lost: Iterable[Lost]) -> list[Difference]:
    """Say which fields folds do not get."""
    return [
        Difference(
            where="event",
            id=str(one.event_id),
            field=f"{one.field}, as {one.by} gets it",
            expected=one.stored,
            found=one.given,
        )
        for one in lost
    ]


async def stored_sums(rows: AsyncIterator[StoredRow]) -> tuple[Sums, list[Difference]]:
    """Sum stored rows by what they hold; return the sums, and the first rows whose checksum is not theirs."""
    sums, differences = Sums(), list[Difference]()
    async for stored in rows:
        _count_stored(stored, sums, differences)
    return sums, differences


def _count_stored(stored: StoredRow, sums: Sums, differences: list[Difference]) -> None:
    folded = stored.folded
    try:
        checksum = f"{sums.add(folded):064x}"
    except (TypeError, ValueError) as problem:
        checksum = f"that of canonical JSON, which the row has not: {problem}"
    if checksum != stored.checksum and len(differences) < SHOWN:
        differences.append(
            Difference(
                where=folded.key.projection,
                id=folded.key.row_id,
                field="checksum",
                expected=checksum,
                found=stored.checksum,
            )
        )
