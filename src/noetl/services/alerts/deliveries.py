"""Messages about alerts as their rows have them: leased by senders, ended by whoever holds the lease, armed again by hand.

Each write appends to the message's own stream with the version that was read: of several at once, one stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec
import orjson

from noetl.engine.dispatch.drafts import new_lease
from noetl.errors import Conflict, InputError, LeaseLost, NotFound
from noetl.faults import reach
from noetl.kernel.leases import operations, statements
from noetl.kernel.leases.kinds import DELIVERY
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.event import Draft
from noetl.model.ids import organization_root_id
from noetl.model.lease import Proof
from noetl.model.stream import Scope
from noetl.services.alerts.event_drafts import MAX_ATTEMPTS, AlertWriting

DeliveryStatus = Literal["Pending", "Sending", "Delivered", "Dead"]
_TRIES: Final = 20
_ERROR_CHARACTERS: Final = 1_000


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A message about an alert; one that is `Dead` was given up."""

    delivery_id: str
    alert_id: str
    channel: str
    channel_kind: str
    severity: str
    occasion: str
    status: DeliveryStatus
    attempt: int
    max_attempts: int
    available_at: datetime | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class DeliveryRow(DeliveryView, frozen=True, kw_only=True):
    """A message as its row has it, with what it says and who sends it."""

    document: dict[str, Any]
    worker: str | None
    lease_token: str | None
    expires_at: datetime | None
    execution_id: int
    created_event_id: int
    version: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """What a sender holds while it sends."""

    row: DeliveryRow
    attempt: int
    token: str
    seconds: float

    def sending(self, scope: Scope) -> Sending:
        """Return what keeps it alive."""
        return Sending(scope, Proof((self.row.delivery_id,), self.attempt, self.token), self.seconds)


class Sending(NamedTuple):
    """The proof that a sender holds a message, for heartbeats."""

    scope: Scope
    proof: Proof
    seconds: float


_TEXTS: Final = ("delivery_id", "alert_id", "lease_token")
COLUMNS: Final = ", ".join(
    f"d.{name}::text AS {name}" if name in _TEXTS else f"d.{name}" for name in DeliveryRow.__struct_fields__
)
# A sender takes over what another one lost, so both what waits and what has expired is due.
_SCOPES: Final = f"""
SELECT tenant_id, organization_id FROM noetl.delivery WHERE {DELIVERY.free()}
UNION SELECT tenant_id, organization_id FROM noetl.delivery WHERE {DELIVERY.expired()}
"""  # noqa: S608
_DUE: Final = f"""
SELECT {COLUMNS}, d.expires_at <= clock_timestamp() AS too_old FROM (
    ({statements.candidates(DELIVERY, "delivery_id, available_at AS since", lock=False)})
    UNION ALL
    ({statements.expired(DELIVERY, f"delivery_id, {DELIVERY.until}", limit="$1")})
) AS due JOIN noetl.delivery AS d USING (delivery_id) ORDER BY due.since LIMIT $1
"""  # noqa: S608
_STANDING: Final = statements.standing(DELIVERY, COLUMNS, "d")
_ONE: Final = f"SELECT {COLUMNS} FROM noetl.delivery AS d WHERE d.delivery_id = $1"  # noqa: S608
_LIST: Final = f"""
SELECT {COLUMNS} FROM noetl.delivery AS d
WHERE ($1::text IS NULL OR d.status = $1) AND ($2::uuid IS NULL OR d.alert_id = $2)
  AND ($3::bigint IS NULL OR d.created_event_id < $3)
ORDER BY d.created_event_id DESC LIMIT $4
"""  # noqa: S608


class Deliveries:
    """The messages of all organizations, each seen only within its own."""

    def __init__(self, database: Database, ledger: Ledger, writing: AlertWriting) -> None:
        self._database = database
        self._ledger = ledger
        self._writing = writing

    async def scopes(self) -> list[Scope]:
        """Return the organizations that have something to send now."""
        async with self._database.transaction(None, "reaper") as connection:
            return [Scope(row[0], row[1]) for row in await connection.fetch(_SCOPES)]

    async def lease(self, scope: Scope, worker: str, seconds: float, limit: int) -> list[Lease]:
        """Take leases on what is due; what is too old or was lost too often is given up on the way."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_DUE, limit)
        leases = await asyncio.gather(
            *(self._claim(scope, _row(row), worker, seconds, too_old=bool(row["too_old"])) for row in rows)
        )
        return [one for one in leases if one is not None]

    async def _claim(
        self, scope: Scope, row: DeliveryRow, worker: str, seconds: float, *, too_old: bool
    ) -> Lease | None:
        lost, attempt = row.status == "Sending", row.attempt + 1
        lease = new_lease(worker, attempt, seconds)
        drafts: list[Draft] = []
        if too_old or (lost and row.attempt >= row.max_attempts):
            error = "it was too old to be sent" if too_old else f"its sender was lost in attempt {row.attempt}"
            drafts.append(self._ended(scope, row, "delivery.failed", error))
        else:
            if lost:
                told = {"delay_seconds": 0, "error_kind": "lost"}
                drafts.append(self._ended(scope, row, "delivery.attempt_failed", "its sender was lost", **told))
            drafts.append(
                self._writing.of_delivery(scope, row.delivery_id, row.execution_id, "delivery.claimed", lease)
            )
        reach("delivery.before_claim")
        try:
            await self._append(scope, row, drafts)
        except Conflict:
            return None
        reach("delivery.after_claim")
        if drafts[-1].event_type != "delivery.claimed":
            return None
        return Lease(row=row, attempt=attempt, token=lease["lease_token"], seconds=seconds)

    async def heartbeat(self, leases: Sequence[Sending]) -> list[Sending]:
        """Make leases last longer and return those that are lost."""
        kept: set[Proof] = set()
        for scope in {lease.scope for lease in leases}:
            own = [lease for lease in leases if lease.scope == scope]
            async with self._database.transaction(scope) as connection:
                seconds = [lease.seconds for lease in own]
                kept |= (await operations.renew(connection, DELIVERY, [lease.proof for lease in own], seconds)).keys()
        return [lease for lease in leases if lease.proof not in kept]

    async def delivered(self, scope: Scope, lease: Lease) -> None:
        """Record that the channel took the message; `LeaseLost` if another sender has it by now."""
        await self._end(scope, lease, "delivery.delivered", None)

    async def failed(
        self, scope: Scope, lease: Lease, error: str, *, kind: str, permanent: bool, delay_seconds: float
    ) -> None:
        """Record that an attempt came to nothing: the message waits, or is given up."""
        error = error[:_ERROR_CHARACTERS].replace("\x00", "")
        if permanent or lease.attempt >= lease.row.max_attempts:
            await self._end(scope, lease, "delivery.failed", error)
        else:
            told = {"delay_seconds": delay_seconds, "error_kind": kind}
            await self._end(scope, lease, "delivery.attempt_failed", error, **told)

    async def _end(self, scope: Scope, lease: Lease, event_type: str, error: str | None, **told: Any) -> None:
        for _ in range(_TRIES):
            async with self._database.transaction(scope) as connection:
                found = await connection.fetchrow(_STANDING, lease.row.delivery_id, lease.attempt, lease.token)
            if found is None:
                raise LeaseLost(f"delivery {lease.row.delivery_id} belongs to another sender now")
            row = _row(found)
            reach("delivery.before_record")
            try:
                await self._append(scope, row, [self._ended(scope, row, event_type, error, **told)])
            except Conflict:
                continue
            reach("delivery.after_record")
            return
        raise Conflict(f"delivery {lease.row.delivery_id} keeps changing")

    async def show(self, scope: Scope, delivery_id: str) -> DeliveryRow:
        """Return one message."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_ONE, delivery_id)
        if row is None:
            raise NotFound(f"there is no delivery {delivery_id}", hint="`noetl alerts deliveries` lists them")
        return _row(row)

    async def listed(
        self,
        scope: Scope,
        *,
        status: str | None = None,
        alert_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[DeliveryRow]:
        """Return messages, the newest first; `before` is the `created_event_id` of the last one seen."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_LIST, status, alert_id, before, limit)
        return [_row(row) for row in rows]

    async def rearm(self, scope: Scope, delivery_id: str, *, by: str) -> DeliveryRow:
        """Have a message sent after all that was given up."""
        row = await self.show(scope, delivery_id)
        if row.status != "Dead":
            raise InputError(f"delivery {delivery_id} is {row.status}; only one that was given up is sent again")
        extra = max(row.attempt + MAX_ATTEMPTS - row.max_attempts, 0)
        home = organization_root_id(scope.tenant_id, scope.organization_id)
        draft = self._writing.of_delivery(
            scope, row.delivery_id, home, "delivery.rearmed", {"extra_attempts": extra, "by": by}
        )
        await self._append(scope, row, [draft])
        return await self.show(scope, delivery_id)

    def _ended(self, scope: Scope, row: DeliveryRow, event_type: str, error: str | None, **told: Any) -> Draft:
        meta = {"attempt": row.attempt, "channel_kind": row.channel_kind, **told}
        return self._writing.of_delivery(scope, row.delivery_id, row.execution_id, event_type, meta, error=error)

    async def _append(self, scope: Scope, row: DeliveryRow, drafts: list[Draft]) -> None:
        stream = scope.stream(f"delivery/{row.delivery_id}")
        await self._ledger.transact(Transition((Append(stream, drafts, row.version),)))


def _row(row: Any) -> DeliveryRow:
    fields = {name: row[name] for name in DeliveryRow.__struct_fields__}
    return DeliveryRow(**{**fields, "document": orjson.loads(row["document"])})
