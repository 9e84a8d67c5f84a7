"""Which partitions may hold rows of a range: a column's bounds and manifests go in, a yes or no comes out. Pure.

Only statistics that exclude a row say no; where a file tells nothing, it may hold any.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from noetl.errors import InputError
from noetl.model.dataset import Field, FileEntry, Manifest, partition_values

_HINT: Final = "write it as COLUMN:FROM..TO; a bound may be left out, and TO is not part of the range"


class RowRange(msgspec.Struct, frozen=True, kw_only=True):
    """Rows whose column lies in a half-open range."""

    column: str
    gte: Any = None
    lt: Any = None
    type: str = "string"

    @property
    def row_filter(self) -> dict[str, dict[str, Any]]:
        """The range as events and rows have it."""
        bounds = {"gte": self.gte, "lt": self.lt}
        return {self.column: {name: bound for name, bound in bounds.items() if bound is not None}}

    def may_be_in(self, manifest: Manifest) -> bool:
        """Tell whether a partition may hold such rows."""
        read = _reader(self.type)
        value = partition_values(manifest.partition_key).get(self.column)
        if value is not None:
            return self._meets(read, value, value)
        return any(self._may_hold(read, entry) for entry in manifest.files)

    def _may_hold(self, read: Callable[[Any], Any], entry: FileEntry) -> bool:
        stats = entry.stats.get(self.column, {})
        if "min" not in stats or "max" not in stats:
            return entry.rows > int(stats.get("nulls", 0))
        return self._meets(read, stats["min"], stats["max"])

    def _meets(self, read: Callable[[Any], Any], low: Any, high: Any) -> bool:
        try:
            least, greatest = read(low), read(high)
        except (ValueError, InvalidOperation):
            return True
        return (self.lt is None or least < read(self.lt)) and (self.gte is None or greatest >= read(self.gte))


def row_range(text: str, schema: tuple[Field, ...]) -> RowRange:
    """Read a range written as COLUMN:FROM..TO, its bounds in the column's type."""
    column, colon, bounds = text.partition(":")
    low, dots, high = bounds.partition("..")
    if not colon or not dots or not (low or high):
        raise InputError(f"{text!r} is no range of rows", hint=_HINT)
    known = {field.name: field.type for field in schema}
    if column not in known:
        raise InputError(f"there is no column {column!r}", hint=f"there are {', '.join(known) or 'none yet'}")
    kind = known[column]
    found = RowRange(column=column, gte=_bound(low, kind, text), lt=_bound(high, kind, text), type=kind)
    read = _reader(kind)
    if found.gte is not None and found.lt is not None and read(found.gte) >= read(found.lt):
        raise InputError(f"there is nothing in {text}", hint=_HINT)
    return found


def _bound(text: str, kind: str, whole: str) -> Any:
    if not text:
        return None
    try:
        value = _reader(kind)(text)
    except (ValueError, InvalidOperation):
        raise InputError(f"{text!r} in {whole} is no {kind}", hint=_HINT) from None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


def _reader(kind: str) -> Callable[[Any], Any]:
    """Return what makes values of a column's type comparable, however they are written."""
    match kind.partition("(")[0]:
        case "tinyint" | "smallint" | "int" | "bigint":
            return int
        case "float" | "double":
            return float
        case "decimal":
            return lambda value: Decimal(str(value))
        case "date":
            return lambda value: date.fromisoformat(str(value)[:10])
        case "timestamp" | "timestamp_ntz":
            return _moment
        case _:
            return str


def _moment(value: Any) -> datetime:
    found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
