"""Pins and policies of an organization: what somebody wants kept goes in as one event each, who keeps what comes out."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import Conflict, HistoryNotKept, InputError, NotFound, VersionConflict
from noetl.kernel.ledger.archive.partition import Partition, partition_of
from noetl.kernel.ledger.archive.rows import archive_rows, not_kept
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue import BY_NAME
from noetl.model.catalogue.retention import PINS_STREAM, PinCreated, PinKind
from noetl.model.event import Draft, time_text
from noetl.model.ids import organization_root_id
from noetl.model.mark import Mark
from noetl.model.stream import Scope, Stream
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.services.retention.archives import lock_archives
from noetl.services.retention.policy import changed

TRIES: Final = 20

_PINS: Final = """
SELECT p.pin_id::text AS pin_id, p.kind, p.dataset_uuid::text AS dataset_uuid, d.name AS dataset, p.execution_id,
       p.mark, p.note, p.until, p.created_by, p.created_at, p.released_at,
       p.released_at IS NULL AND (p.until IS NULL OR p.until > clock_timestamp()) AS holds
FROM noetl.pin AS p LEFT JOIN noetl.dataset AS d USING (tenant_id, organization_id, dataset_uuid)
WHERE $1 OR p.released_at IS NULL AND (p.until IS NULL OR p.until > clock_timestamp())
ORDER BY p.created_at, p.pin_id
"""
_EXECUTION: Final = "SELECT EXISTS (SELECT FROM noetl.event WHERE execution_id = $1)"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is kept whatever its age, while `holds`."""

    pin_id: str
    kind: PinKind
    dataset_uuid: str | None
    dataset: str | None
    execution_id: int | None
    mark: str | None
    note: str
    until: datetime | None
    created_by: str
    created_at: datetime
    released_at: datetime | None
    holds: bool

    @property
    def label(self) -> str:
        """How a reason names it."""
        return f"{self.pin_id[:8]} ({self.note})" if self.note else self.pin_id[:8]


class Pins:
    """The pins of all organizations, each seen only within its own."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        history: History,
        datasets: Datasets,
        mint: Callable[[], int],
        producer: str,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._history = history
        self._datasets = datasets
        self._mint = mint
        self._producer = producer

    async def listed(self, scope: Scope, *, every: bool = False) -> list[Pin]:
        """Return the pins that hold, or all there ever were, the oldest first."""
        async with self._database.transaction(scope) as connection:
            return await read_pins(connection, every=every)

    async def pin_dataset(
        self, scope: Scope, name: str, mark: Mark, *, note: str = "", until: datetime | None = None, by: str
    ) -> Pin:
        """Keep a dataset as it was at a mark; HistoryNotKept if that is gone already."""

        async def decide() -> PinCreated:
            view = await self._datasets.view(scope, name, mark)
            if view.generation is None:
                raise InputError(
                    f"no version of DAG {view.dataset.dag} served dataset {view.dataset.name} at that point",
                    hint="name another point with --at",
                )
            return _created("dataset", note, until, by, dataset_uuid=view.dataset.dataset_uuid, mark=mark.token())

        return await self._pin(scope, decide)

    async def pin_mark(
        self, scope: Scope, mark: Mark, *, note: str = "", until: datetime | None = None, by: str
    ) -> Pin:
        """Keep every dataset as it was at a mark; HistoryNotKept if some of it is gone already."""

        async def decide() -> PinCreated:
            for dataset in await self._datasets.registered(scope):
                await self._datasets.view(scope, dataset.dataset_uuid, mark)
            return _created("mark", note, until, by, mark=mark.token())

        return await self._pin(scope, decide)

    async def pin_execution(
        self, scope: Scope, execution_id: int, *, note: str = "", until: datetime | None = None, by: str
    ) -> Pin:
        """Keep the events and payloads of an execution; HistoryNotKept if they are gone already."""

        async def decide() -> PinCreated:
            await self._check_archives(scope, partition_of(execution_id))
            async with self._database.transaction(scope) as connection:
                there = await connection.fetchval(_EXECUTION, execution_id)
            if not there and not await self._archived(scope, execution_id):
                raise NotFound(f"there is no execution {execution_id}", hint="`noetl executions list` shows them")
            return _created("execution", note, until, by, execution_id=str(execution_id))

        pin = await self._pin(scope, decide)
        try:
            await self._check_archives(scope, partition_of(execution_id))
        except HistoryNotKept:
            await self.release(scope, pin.pin_id, by)
            raise
        return pin

    async def release(self, scope: Scope, pin: str, by: str) -> Pin:
        """Take a pin away by the beginning of its id; what it kept may go with the next run."""
        found: Pin

        async def decide() -> tuple[str, dict[str, Any], dict[str, Any]]:
            nonlocal found
            matching = [one for one in await self.listed(scope) if pin and one.pin_id.startswith(pin)]
            if len(matching) != 1:
                what = "several pins begin" if matching else "no pin that holds begins"
                raise (InputError if matching else NotFound)(f"{what} with {pin}", hint="noetl retention pins")
            found = matching[0]
            return "pin.released", {"pin_id": found.pin_id, "by": by}, {}

        await self._record(scope, decide)
        return found

    async def policy(self, scope: Scope) -> dict[str, Any]:
        """Return what the organization decided for itself."""
        async with self._database.transaction(scope) as connection:
            return await read_policy(connection)

    async def set_policy(self, scope: Scope, changes: Mapping[str, str], by: str) -> dict[str, Any]:
        """Change what the organization decided, as people write it, and return all it decided."""
        own: dict[str, Any] = {}

        async def decide() -> tuple[str, dict[str, Any], dict[str, Any]] | None:
            nonlocal own
            before = await self.policy(scope)
            own = changed(before, changes)
            return None if own == before else ("pin.policy_set", {"by": by}, {"policy": own})

        await self._record(scope, decide)
        return own

    async def _check_archives(self, scope: Scope, month: Partition | None) -> None:
        """Raise HistoryNotKept if the archive of a month is removed; one that is being removed is waited for."""
        async with self._database.transaction(scope) as connection:
            await lock_archives(connection, scope, shared=True)
            rows = [] if month is None else await archive_rows(connection, month.name)
        gone = [row for row in rows if row.removed]
        if gone:
            raise not_kept(gone)

    async def _archived(self, scope: Scope, execution_id: int) -> bool:
        async for _ in self._history.read_execution(scope, execution_id):
            return True
        return False

    async def _pin(self, scope: Scope, decide: Callable[[], Awaitable[PinCreated]]) -> Pin:
        made: PinCreated

        async def decided() -> tuple[str, dict[str, Any], dict[str, Any]]:
            nonlocal made
            made = await decide()
            return "pin.created", msgspec.to_builtins(made), {}

        await self._record(scope, decided)
        return next(pin for pin in await self.listed(scope, every=True) if pin.pin_id == made.pin_id)

    async def _record(
        self, scope: Scope, decide: Callable[[], Awaitable[tuple[str, dict[str, Any], dict[str, Any]] | None]]
    ) -> None:
        """Record what is decided on what stands; whoever pinned or removed something meanwhile makes it decide again."""
        stream = pins_stream(scope)
        for _ in range(TRIES):
            async with self._database.transaction(scope) as connection:
                known = await stream_version(connection, stream)
            said = await decide()
            if said is None:
                return
            draft = draft_of(scope, stream, self._mint(), self._producer, *said)
            try:
                await self._ledger.transact(Transition((Append(stream, [draft], known),)))
            except VersionConflict:
                continue
            return
        raise Conflict(f"the pins of this organization were changed by others {TRIES} times; try again")


def pins_stream(scope: Scope) -> Stream:
    """Return the stream in which an organization's pins stand and every removal is told."""
    return scope.stream(PINS_STREAM)


async def stream_version(connection: Connection, stream: Stream) -> int:
    """Return how many events a stream has."""
    return await connection.fetchval("SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id) or 0


async def read_pins(connection: Connection, *, every: bool = False) -> list[Pin]:
    """Return the pins that hold, or all there ever were."""
    return [msgspec.convert(dict(row), Pin) for row in await connection.fetch(_PINS, every)]


async def read_policy(connection: Connection) -> dict[str, Any]:
    """Return what the organization decided for itself."""
    found = await connection.fetchval("SELECT policy FROM noetl.retention_policy")
    return {} if found is None else dict(orjson.loads(found))


def draft_of(
    scope: Scope,
    stream: Stream,
    event_id: int,
    producer: str,
    event_type: str,
    meta: dict[str, Any],
    context: dict[str, Any],
) -> Draft:
    """Return an event of retention; all stand under the organization's own id, whose events are never dropped."""
    kind = BY_NAME[event_type]
    return Draft(
        event_id,
        scope.tenant_id,
        scope.organization_id,
        organization_root_id(scope.tenant_id, scope.organization_id),
        stream.stream_id,
        kind.aggregate,
        stream.stream_id,
        event_type,
        kind.schema_name,
        kind.version,
        datetime.now(UTC),
        producer,
        meta=meta,
        context=context,
    )


def _created(kind: PinKind, note: str, until: datetime | None, by: str, **what: str) -> PinCreated:
    told = None if until is None else time_text(until)
    return PinCreated(pin_id=str(uuid.uuid4()), kind=kind, note=note, until=told, by=by, **what)
