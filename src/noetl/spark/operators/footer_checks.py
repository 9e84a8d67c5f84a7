"""What footers alone tell about a check. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final

import msgspec

from noetl.language.dag.model import Check
from noetl.model.dataset import Field, FileEntry

WHOLE: Final = ("unique", "row_count", "freshness", "sql")
"""Promises about a partition as it will stand; the others hold row by row and were kept when older files came."""
_EXACT: Final = ("tinyint", "smallint", "int", "bigint", "string", "date", "boolean")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is checked: the new files of one output of one task, and those that stand beside them after a commit."""

    schema: tuple[Field, ...]
    files: tuple[FileEntry, ...]
    standing: tuple[FileEntry, ...] = ()

    def of(self, check: Check) -> tuple[FileEntry, ...]:
        """The files that a check is about."""
        return (*self.standing, *self.files) if check.kind in WHOLE else self.files


def proved(check: Check, subject: Subject, now: datetime) -> tuple[int, str] | None:
    """Return what rows and footers alone tell about a check: its violations and words, or none where rows must be read."""
    files = subject.of(check)
    rows = sum(entry.rows for entry in files)
    if check.kind == "row_count":
        return _row_count(check, rows)
    if check.kind == "freshness":
        return fresh(check, rows, _newest(check, subject, files), now)
    if check.kind == "sql":
        return None
    if not rows:
        return 0, ""
    if check.kind == "not_null":
        counts = [entry.stats.get(name, {}).get("nulls") for entry in files for name in check.columns]
        return None if None in counts else counted(sum(filter(None, counts)), "rows are null")
    types = {one.name: one.type for one in subject.schema}
    if check.kind == "unique" or any(types[name] not in _EXACT for name in check.columns):
        return None
    bounds = [entry.stats.get(name, {}) for entry in files for name in check.columns]
    if all("min" in one and _within(check, one["min"], one["max"]) for one in bounds):
        return 0, ""
    return None


def _within(check: Check, low: Any, high: Any) -> bool:
    if check.kind == "set":
        return bool(low == high and low in check.values)
    wanted_low, wanted_high = _comparable(check.min, low), _comparable(check.max, high)
    try:
        return (wanted_low is None or low >= wanted_low) and (wanted_high is None or high <= wanted_high)
    except TypeError:
        return False


def _comparable(wanted: Any, held: Any) -> Any:
    return wanted.isoformat() if isinstance(wanted, date) and isinstance(held, str) else wanted


def _row_count(check: Check, rows: int) -> tuple[int, str]:
    if check.min is not None and rows < check.min:
        return 1, f"{rows} rows, at least {check.min} expected"
    if check.max is not None and rows > check.max:
        return 1, f"{rows} rows, at most {check.max} expected"
    return 0, ""


def _newest(check: Check, subject: Subject, files: Sequence[FileEntry]) -> int | None:
    name = check.columns[0]
    if {one.name: one.type for one in subject.schema}[name] != "timestamp":
        return None
    stats = [entry.stats.get(name, {}) for entry in files]
    if not all("max" in one for one in stats):
        return None
    newest = max((datetime.fromisoformat(one["max"]) for one in stats), default=None)
    return None if newest is None else round(newest.timestamp() * 1e6)


def fresh(check: Check, rows: int, newest: int | None, now: datetime) -> tuple[int, str] | None:
    """Return whether the newest row, in microseconds, is young enough; none where no time is known."""
    if not rows:
        return 1, "there are no rows"
    if newest is None:
        return None
    age = now.timestamp() - newest / 1e6
    if check.max_age_seconds is not None and age > check.max_age_seconds:
        return 1, f"the newest row is {age:.0f} s old, at most {check.max_age_seconds:.0f} s allowed"
    return 0, ""


def counted(count: int, words: str) -> tuple[int, str]:
    """Return a count of violations with its words."""
    return count, f"{count} {words}" if count else ""
