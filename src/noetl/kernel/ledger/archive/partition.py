"""The months the ledger is cut into: an execution id or a table name goes in, a month with its bounds comes out."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from noetl.errors import InputError
from noetl.model.ids import ROOT_ID_LIMIT, snowflake_at, snowflake_time

_NAME = re.compile(r"event_([0-9]{4})_(0[1-9]|1[0-2])")


class Partition(msgspec.Struct, frozen=True, order=True):
    """The events of all executions that were begun in one month (UTC)."""

    year: int
    month: int

    @property
    def name(self) -> str:
        """The name of its table."""
        return f"event_{self.year:04d}_{self.month:02d}"

    @property
    def starts(self) -> datetime:
        """The first instant of the month."""
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def ends(self) -> datetime:
        """The first instant after the month."""
        return datetime(self.year + self.month // 12, self.month % 12 + 1, 1, tzinfo=UTC)

    @property
    def first_id(self) -> int:
        """The lowest execution id it holds."""
        return max(snowflake_at(self.starts), ROOT_ID_LIMIT)

    @property
    def end_id(self) -> int:
        """The lowest execution id that is too high for it."""
        return snowflake_at(self.ends)


def partition_of(execution_id: int) -> Partition | None:
    """Return the month an execution belongs to, or None for an organization's root id, whose events always stay."""
    if execution_id < ROOT_ID_LIMIT:
        return None
    begun = snowflake_time(execution_id)
    return Partition(begun.year, begun.month)


def partition_named(name: str) -> Partition:
    """Return the month whose table has that name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InputError(f"{name!r} is not a partition of the ledger", hint="write it like event_2026_05")
    return Partition(int(found[1]), int(found[2]))


def months_before(moment: datetime, months: int) -> datetime:
    """Return the start of the month that lies so many months before the month of a moment."""
    count = moment.astimezone(UTC).year * 12 + moment.astimezone(UTC).month - 1 - months
    return datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)
