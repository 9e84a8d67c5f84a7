"""Reading a view from beginning to end: computed, redacted, put on record, and only then handed out by the database.

What the reader gets is taken with the operator's role, which sees no row of any tenant and gets no answer to a read that
is not on record. A read that ends early gives nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg
import msgspec
import orjson

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import Denied, InputError, NotFound
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue.queries import CuratedEngine, CuratedRead
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.services.curated.redaction import Contribution, Redacted, redact
from noetl.services.curated.registry import CuratedViews
from noetl.services.curated.view import CuratedView

_KEYED_BY: Final = "SELECT secret FROM noetl.curated_secret"
_FORGET: Final = "DELETE FROM noetl.curated_answer WHERE computed_at < now() - interval '1 hour'"
_KEEP: Final = (
    "INSERT INTO noetl.curated_answer (tenant_id, organization_id, read_id, answer) VALUES ($1, $2, $3, $4::text::json)"
)
_TAKE: Final = "SELECT noetl.take_curated_answer($1, $2, $3)::text"


class Grouping(Protocol):
    """An engine that groups a view's fact over all tenants."""

    async def contributions(self, view: CuratedView, since: datetime) -> tuple[Mark, list[Contribution]]:
        """Return what each organization adds to each group, and the mark up to which events were read."""
        ...


@dataclass(frozen=True)
class Reader:
    """Who reads, and the organization whose ledger has the record of it."""

    scope: Scope
    name: str
    token_id: UUID | None = None


@dataclass(frozen=True)
class Answer:
    """The rows of a view with what they were read from."""

    read_id: int
    view: CuratedView
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    withheld: bool
    mark: Mark
    since: datetime
    engine: CuratedEngine
    milliseconds: float


class CuratedReads:
    """Gives operators what the views leave of all tenants' facts."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        views: CuratedViews,
        engines: dict[CuratedEngine, Grouping],
        mint_many: Callable[[int], list[int]],
        producer: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.views = views
        self._database = database
        self._engines = engines
        self._mint_many = mint_many
        self.record = ReadRecord(database, ledger, mint_many, producer)
        self._now = now

    async def read(self, reader: Reader, name: str, engine: CuratedEngine = "postgres") -> Answer:
        """Read a view; the caller hears nothing of it before it is on record."""
        view = self.views.get(name)
        grouping = self._engines.get(engine)
        if grouping is None:
            raise InputError(f"there is no engine {engine} here", hint=f"there is {', '.join(self._engines)}")
        began = time.perf_counter()
        midnight = self._now().replace(hour=0, minute=0, second=0, microsecond=0)
        since = midnight - timedelta(days=view.days)
        async with self._database.transaction(None, "projector") as connection:
            secret = await connection.fetchval(_KEYED_BY)
        mark, found = await grouping.contributions(view, since)
        redacted = await asyncio.to_thread(redact, view, found, secret)
        read_id = self._mint_many(1)[0]
        await self._keep(reader.scope, read_id, redacted)
        answer = Answer(
            read_id=read_id,
            view=view,
            columns=view.columns,
            rows=(),
            withheld=redacted.withheld,
            mark=mark,
            since=since,
            engine=engine,
            milliseconds=(time.perf_counter() - began) * 1000,
        )
        await self.record.add(reader.scope, read_id, _told(reader, answer, len(redacted.rows)))
        return replace(answer, rows=await self._taken(reader.scope, read_id))

    async def _keep(self, scope: Scope, read_id: int, redacted: Redacted) -> None:
        text = orjson.dumps(redacted.rows).decode()
        async with self._database.transaction(scope, "projector") as connection:
            await connection.execute(_FORGET)
            await connection.execute(_KEEP, scope.tenant_id, scope.organization_id, read_id, text)

    async def _taken(self, scope: Scope, read_id: int) -> tuple[tuple[Any, ...], ...]:
        try:
            async with self._database.transaction(scope, "operator") as connection:
                text = await connection.fetchval(_TAKE, scope.tenant_id, scope.organization_id, read_id)
        except asyncpg.InsufficientPrivilegeError as problem:
            raise Denied(
                f"the database does not hand out read {read_id}: {problem}",
                hint="the login must be granted the role noetl_operator",
            ) from None
        if text is None:
            raise NotFound(f"the answer to read {read_id} was handed out before, or took longer than an hour")
        return tuple(tuple(row) for row in orjson.loads(text))


def _told(reader: Reader, answer: Answer, rows: int) -> CuratedRead:
    return CuratedRead(
        view=answer.view.name,
        version=answer.view.version,
        definition_sha256=answer.view.digest,
        asked_by=reader.name,
        engine=answer.engine,
        mark=answer.mark.token(),
        since=answer.since.isoformat(),
        rows=rows,
        withheld=answer.withheld,
        milliseconds=round(answer.milliseconds, 3),
        token_id=None if reader.token_id is None else str(reader.token_id),
    )


_LISTED: Final = """
SELECT e.execution_id, e.meta::text AS meta, e.ingest_time
FROM (SELECT s.stream_id FROM noetl.stream AS s
      WHERE s.tenant_id = $1 AND s.organization_id = $2 AND s.stream_id > 'curated/' AND s.stream_id < 'curated0'
      ORDER BY s.stream_id DESC LIMIT $3) AS newest
JOIN noetl.event AS e ON e.stream_id = newest.stream_id AND e.stream_version = 1
 AND e.execution_id = split_part(newest.stream_id, '/', 2)::bigint
WHERE e.event_type = 'curated.read' ORDER BY e.execution_id DESC
"""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A read of the past."""

    read_id: str
    read_at: datetime
    read: CuratedRead


class ReadRecord:
    """The reads of all organizations' operators, each seen only within its own."""

    def __init__(
        self, database: Database, ledger: Ledger, mint_many: Callable[[int], list[int]], producer: str
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = Drafting(mint_many, producer)

    async def add(self, scope: Scope, read_id: int, read: CuratedRead) -> None:
        """Put a read on record; it is an execution of its own, and with this it has ended."""
        stream = scope.stream(f"curated/{read_id}")
        meta = {name: value for name, value in msgspec.structs.asdict(read).items() if value is not None}
        said = self._drafting.one(scope, stream, read_id, "curated.read", stream.stream_id, meta=meta)
        ended = self._drafting.one(
            scope, stream, read_id, "execution.completed", f"execution/{read_id}", causation_id=said.event_id
        )
        reach("curated.before_record")
        await self._ledger.transact(Transition((Append(stream, [said, ended], 0),)))
        reach("curated.after_record")

    async def listed(self, scope: Scope, limit: int = 50) -> list[Recorded]:
        """Return reads that are kept in the database, the newest first."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_LISTED, scope.tenant_id, scope.organization_id, limit)
        return [
            Recorded(
                read_id=str(row["execution_id"]),
                read_at=row["ingest_time"],
                read=msgspec.convert(orjson.loads(row["meta"]), CuratedRead),
            )
            for row in rows
        ]
