"""The event types of queries: who asked what and how it was answered, and who may read a dataset. Joined to the others by
`catalogue`.

The text of a query is in none of them, nor any literal of it: its SHA-256 alone.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType

QueryEngine = Literal["duckdb", "spark"]
CuratedEngine = Literal["postgres", "spark"]


class QueriedDataset(msgspec.Struct, frozen=True):
    """A dataset that was read, and the generation of it."""

    name: str
    dataset_uuid: str
    dataset_version: str


class QueryAsked(msgspec.Struct, frozen=True):
    """Who asked, on which engine, and how long it took."""

    asked_by: str
    engine: QueryEngine
    sql_sha256: str
    milliseconds: int | float
    token_id: str | None = None
    user_id: str | None = None
    mark: str | None = None
    """The point of the history that was read; none where the query did not come so far."""
    rows: int | None = None
    bytes: int | None = None
    code: str | None = None
    """The word for why it was refused or failed."""


class QueryRead(msgspec.Struct, frozen=True):
    """What was read."""

    datasets: list[QueriedDataset] = []


class ReadersSet(msgspec.Struct, frozen=True):
    """The roles whose holders may read a dataset; none lets the whole organization."""

    dataset_uuid: str
    roles: list[str]
    set_by: str


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


QUERIES_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="query.answered",
        sentence="A query over datasets was answered.",
        aggregate="query",
        meta=QueryAsked,
        context=QueryRead,
        opens=("query_audit",),
    ),
    EventType(
        name="query.refused",
        sentence="A query was not run, because it may not be asked or not by this caller.",
        aggregate="query",
        meta=QueryAsked,
        context=QueryRead,
        opens=("query_audit",),
    ),
    EventType(
        name="query.failed",
        sentence="A query was run and gave no answer.",
        aggregate="query",
        meta=QueryAsked,
        context=QueryRead,
        opens=("query_audit",),
    ),
    EventType(
        name="query.readers_set",
        sentence="The roles that may read a dataset were set.",
        aggregate="dataset",
        meta=ReadersSet,
        opens=("dataset_reader",),
        ends=("dataset_reader",),
    ),
)
"""In the order they are met."""

CURATED_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="curated.read",
        sentence="A curated view of all tenants was read by an operator.",
        aggregate="curated",
        meta=CuratedRead,
        observed=True,
    ),
)
"""Reading over all tenants, which an organization does not see."""
