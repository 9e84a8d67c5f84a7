"""The record of queries: how one came out goes in as two events of its own stream; the list of them comes out of rows.

What a query said is never kept, only the SHA-256 of its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.engine.dispatch.drafts import Drafting
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue.queries import QueriedDataset
from noetl.model.ids import MAX_ID
from noetl.model.stream import Scope

Outcome = Literal["answered", "refused", "failed"]
_LISTED: Final = """
SELECT query_id::text AS query_id, outcome, code, asked_by, token_id::text AS token_id, user_id::text AS user_id, engine,
       sql_sha256, mark, pinned, rows, bytes, milliseconds, asked_at
FROM noetl.query_audit WHERE query_id < $1 AND ($2::text IS NULL OR outcome = $2)
  AND ($3::text IS NULL OR pinned @> jsonb_build_array(jsonb_build_object('name', $3::text)))
ORDER BY query_id DESC LIMIT $4
"""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """How a query came out."""

    query_id: int
    outcome: Outcome
    asked_by: str
    engine: Literal["duckdb", "spark"]
    sql: str = ""
    """What was asked; only its digest is recorded."""
    milliseconds: float
    token_id: str | None = None
    user_id: str | None = None
    mark: str | None = None
    rows: int | None = None
    bytes: int | None = None
    code: str | None = None
    datasets: tuple[QueriedDataset, ...] = ()


class PublicQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a query of the past, besides the point of its data."""

    query_id: str
    outcome: Outcome
    code: str | None
    asked_by: str
    token_id: str | None
    user_id: str | None
    engine: str
    sql_sha256: str
    datasets: tuple[QueriedDataset, ...]
    rows: int | None
    bytes: int | None
    milliseconds: float
    asked_at: datetime


class Asked(PublicQuery, frozen=True, kw_only=True):
    """A query of the past."""

    mark: str | None


class Audit:
    """The queries of all organizations, each seen only within its own."""

    def __init__(
        self, database: Database, ledger: Ledger, mint_many: Callable[[int], list[int]], producer: str
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = Drafting(mint_many, producer)

    async def record(self, scope: Scope, told: Told) -> None:
        """Record a query; it is an execution of its own, and with this it has ended."""
        stream = scope.stream(f"query/{told.query_id}")
        meta: dict[str, Any] = {
            "asked_by": told.asked_by,
            "engine": told.engine,
            "sql_sha256": digest(told.sql),
            "milliseconds": round(told.milliseconds, 3),
        }
        for name in ("token_id", "user_id", "mark", "rows", "bytes", "code"):
            value = getattr(told, name)
            if value is not None:
                meta[name] = value
        said = self._drafting.one(
            scope,
            stream,
            told.query_id,
            f"query.{told.outcome}",
            stream.stream_id,
            meta=meta,
            context={"datasets": msgspec.to_builtins(told.datasets)} if told.datasets else {},
        )
        ended = self._drafting.one(
            scope,
            stream,
            told.query_id,
            "execution.completed",
            f"execution/{told.query_id}",
            causation_id=said.event_id,
        )
        reach("query.before_record")
        await self._ledger.transact(Transition((Append(stream, [said, ended], 0),)))
        reach("query.after_record")

    async def listed(
        self,
        scope: Scope,
        *,
        before: int | None = None,
        outcome: Outcome | None = None,
        dataset: str | None = None,
        limit: int = 50,
    ) -> Sequence[Asked]:
        """Return queries, the newest first; `before` goes on after one that was seen."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_LISTED, before or MAX_ID, outcome, dataset, limit)
        return [_asked(row) for row in rows]


def digest(sql: str) -> str:
    """Return what is kept of a query's text."""
    return hashlib.sha256(sql.encode("utf-8", "surrogatepass")).hexdigest()


def _asked(row: Any) -> Asked:
    known = dict(row)
    return msgspec.convert({**known, "datasets": orjson.loads(known.pop("pinned"))}, Asked)
