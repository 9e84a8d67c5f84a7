"""The event type of curated views: who read which view of all tenants. Joined to the others by `catalogue`.

What was read is in no event: only which view, at which mark, and how many rows of it were given.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType

CuratedEngine = Literal["postgres", "spark"]


class CuratedRead(msgspec.Struct, frozen=True):
    """Who read which view, and how much of it was given."""

    view: str
    version: int
    definition_sha256: str
    """The digest of the whole declaration, which tells what the view was even if its version was not changed with it."""
    asked_by: str
    engine: CuratedEngine
    mark: str
    since: str
    """The first instant that was looked at."""
    rows: int
    withheld: bool
    """Whether there were groups that were not given."""
    milliseconds: int | float
    token_id: str | None = None


CURATED_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="curated.read",
        sentence="A curated view of all tenants was read by an operator.",
        aggregate="curated",
        meta=CuratedRead,
    ),
)
