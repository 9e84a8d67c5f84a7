"""Projected rows as they are stored: a folded row goes in, plain columns with its canonical JSON and checksum come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from noetl.errors import InputError, Unsupported
from noetl.kernel.projections.folds.checksum import canonical_row
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey, parsed_row
from noetl.kernel.projections.stores.port import Failure, Page, StoredRow
from noetl.model.broken_stream import BrokenStream

COLUMNS: Final = (
    "tenant_id",
    "organization_id",
    "projection",
    "row_id",
    "execution_id",
    "shard",
    "first_position",
    "last_position",
    "fold_version",
    "status",
    "checksum",
    "state",
)
"""The columns of a stored row, in the order `to_columns` writes and `from_columns` reads them."""

Columns = tuple[str, str, str, str, int, int, int, int, int, str | None, str, str]

_FILTERS: Final[dict[str, type]] = {"execution_id": int, "status": str}


def to_columns(folded: FoldedRow) -> Columns:
    """Lay a row out for storage."""
    state, checksum = canonical_row(folded)
    status = folded.row.get("status")
    return (
        *folded.key,
        folded.execution_id,
        folded.shard,
        folded.first_position,
        folded.last_position,
        folded.version,
        # A user's row may call anything its status; what is no text cannot be searched for.
        status if isinstance(status, str) and "\0" not in status else None,
        checksum,
        state.decode(),
    )


def from_columns(columns: Iterable[Any]) -> StoredRow:
    """Read a stored row back; its JSON values are the caller's own."""
    (
        tenant_id,
        organization_id,
        projection,
        row_id,
        execution_id,
        shard,
        first,
        last,
        version,
        status,
        checksum,
        state,
    ) = columns
    key = RowKey(tenant_id, organization_id, projection, row_id)
    return StoredRow(FoldedRow(key, version, execution_id, shard, first, last, parsed_row(state)), status, checksum)


def check_query(projection: str | None, filters: Mapping[str, Any] | None, page: Page | None) -> dict[str, Any]:
    """Return the filters of a query that makes sense, and refuse one that does not."""
    given = dict(filters or {})
    for name, value in given.items():
        wanted = _FILTERS.get(name)
        if wanted is None:
            raise InputError(f"rows cannot be filtered by {name!r}; there are {', '.join(_FILTERS)}")
        if type(value) is not wanted:
            raise InputError(f"the filter {name} takes {wanted.__name__}, not {value!r}")
    if page is not None and projection is None:
        raise InputError("a page needs one projection, since row ids of several are not one order")
    if page is not None and page.limit < 1:
        raise InputError(f"a page holds at least one row, not {page.limit}")
    return given


def same_failure(one: Failure, other: Failure) -> bool:
    """Tell whether two failures are the same thing going wrong, whenever it began."""
    return (one.code, one.message, one.position) == (other.code, other.message, other.position)


def same_places(one: Iterable[BrokenStream], other: Iterable[BrokenStream]) -> bool:
    """Tell whether the same streams stand still at the same events."""
    return {(each.stream, each.position) for each in one} == {(each.stream, each.position) for each in other}


def check_folds(shard: int, stored: Mapping[str, int] | None, running: Mapping[str, int] | None) -> None:
    """Refuse folds other than those that made a shard's rows: what they would add belongs to no one history."""
    if stored is None or running is None or stored == dict(running):
        return
    names = sorted(stored.keys() | running.keys())
    differing = [name for name in names if stored.get(name) != running.get(name)]
    parts = ", ".join(f"{name} ({_shown(stored.get(name))}, now {_shown(running.get(name))})" for name in differing)
    raise Unsupported(
        f"shard {shard} was projected by other folds: {parts}",
        hint="run `noetl projections rebuild` with the folds you want, or configure those the rows were made with",
    )


def _shown(version: int | None) -> str:
    return "none" if version is None else f"version {version}"
