"""Schedules in memory: one stream of a schedule goes in, what is due, stale or to be tried again comes out, as SQL would find it.

The scheduler's own code decides, claims, runs and ends slots; only what it asks PostgreSQL is answered from here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.model.event import Event
from noetl.model.stream import Scope
from noetl.services.schedule.claims import Able, Claiming
from noetl.services.schedule.drafts import ScheduleDrafts
from noetl.services.schedule.held_slot import Held
from noetl.services.schedule.lost_runs import TakingBack
from noetl.services.schedule.meter import Meter
from noetl.services.schedule.planning import first_plan
from noetl.services.schedule.rows import DueRow
from noetl.services.schedule.slot_leases import SlotLeases
from noetl.services.schedule.spec import Named, Spec, schedule_stream
from noetl.testing.engines.memory import SCOPE
from noetl.testing.simulation.world.clock import BEGIN

ABLE = Able(("playbook",))
LAST = BEGIN + timedelta(seconds=13)
"""After which moment the schedule plans nothing more, so that a world can end."""


class SlotState(msgspec.Struct, kw_only=True):
    """A slot as its row would stand."""

    plan_time: datetime
    status: str
    attempt: int
    max_attempts: int
    token: str | None
    runner: str | None
    next_retry_at: datetime | None = None
    lease_until: datetime | None = None
    lease_seconds: float = 0.0


class MemorySlots:
    """One schedule and its slots, folded from the ledger as far as it has grown."""

    def __init__(self, ledger: MemoryLedger, now: Callable[[], datetime], spec: Spec, path: str) -> None:
        self._ledger = ledger
        self._now = now
        self.spec = spec
        self.named = Named(name="tick")
        self.schedule_id = self.named.schedule_id(SCOPE)
        self.stream = schedule_stream(SCOPE, self.schedule_id)
        self.next_plan = self.first = first_plan(spec, BEGIN)
        self.version = 0
        self.slots: dict[datetime, SlotState] = {}
        self.skipped = 0
        self._path = path
        self._seen = 0

    def grow(self) -> None:
        """Fold what has been recorded since."""
        kept = self._ledger._shards[self.stream.shard]
        for event in kept[self._seen :]:
            if event.stream == self.stream:
                self._apply(event)
        self._seen = len(kept)

    def _apply(self, event: Event) -> None:
        meta, self.version = event.meta, event.stream_version
        if "next_plan" in meta:
            self.next_plan = datetime.fromisoformat(meta["next_plan"])
        if event.event_type == "slot.skipped":
            self.skipped += meta["count"]
            return
        moment = datetime.fromisoformat(meta["plan_time"])
        if event.event_type == "slot.claimed":
            self.slots[moment] = SlotState(
                plan_time=moment,
                status="RUNNING",
                attempt=meta["attempt"],
                max_attempts=meta["max_attempts"],
                token=meta["lease_token"],
                runner=meta["worker"],
                lease_until=event.ingest_time + timedelta(seconds=meta["lease_seconds"]),
                lease_seconds=meta["lease_seconds"],
            )
            return
        slot = self.slots[moment]
        slot.token = slot.lease_until = slot.next_retry_at = None
        slot.status = "SUCCESS" if event.event_type == "slot.succeeded" else "FAILED"
        if "delay_seconds" in meta:
            slot.next_retry_at = event.ingest_time + timedelta(seconds=meta["delay_seconds"])

    @property
    def is_over(self) -> bool:
        """Tell whether every planned moment has come to its end."""
        self.grow()
        going_on = (slot.status == "RUNNING" or slot.next_retry_at is not None for slot in self.slots.values())
        return self.next_plan > LAST and not any(going_on)

    async def due(self) -> tuple[datetime, list[DueRow]]:
        """Return the time, and the schedule if a moment of it has come."""
        self.grow()
        now = self._now()
        is_due = self.next_plan <= now and self.next_plan <= LAST
        return now, [self._row()] if is_due else []

    def _row(self) -> DueRow:
        return DueRow(
            scope=SCOPE,
            schedule_id=self.schedule_id,
            name=self.named.name,
            kind="playbook",
            target={"path": self._path},
            spec=self.spec,
            next_plan=self.next_plan,
            version=self.version,
            removed_at=None,
        )

    async def to_take_back(self) -> tuple[datetime, list[dict[str, Any]]]:
        """Return the time, and slots that wait for another try or whose runner was lost."""
        self.grow()
        now, spec = self._now(), msgspec.structs.asdict(self.spec)
        shared = {
            **spec,
            "retry_backoff": msgspec.json.encode(self.spec.retry_backoff),
            "tenant_id": SCOPE.tenant_id,
            "organization_id": SCOPE.organization_id,
            "schedule_id": self.schedule_id,
            "name": self.named.name,
            "kind": "playbook",
            "target": msgspec.json.encode({"path": self._path}),
            "next_plan": self.next_plan,
            "version": self.version,
            "removed_at": None,
        }
        found = []
        for slot in self.slots.values():
            is_stale = slot.status == "RUNNING" and slot.lease_until is not None and slot.lease_until <= now
            is_waiting = slot.next_retry_at is not None and slot.next_retry_at <= now
            if is_stale or is_waiting:
                own = {"slot_attempt": slot.attempt, "slot_max_attempts": slot.max_attempts}
                found.append({**shared, **msgspec.structs.asdict(slot), **shared, **own})
        return now, found

    def standing(self, plan_time: datetime, attempt: int, token: str) -> int | None:
        """Return the schedule's version while a lease on a slot is its holder's."""
        self.grow()
        slot = self.slots.get(plan_time)
        return self.version if slot is not None and (slot.attempt, slot.token) == (attempt, token) else None

    def renew(self, held: Held) -> bool:
        """Make a lease last longer."""
        if self.standing(held.plan_time, held.attempt, held.token) is None:
            return False
        slot = self.slots[held.plan_time]
        if slot.lease_until is None or slot.lease_until <= self._now():
            return False
        slot.lease_until = max(slot.lease_until, self._now() + timedelta(seconds=slot.lease_seconds))
        return True

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[MemorySlots]:
        """Give itself, as a database gives a connection."""
        yield self

    async def fetchval(self, query: str, schedule_id: str, plan_time: datetime, attempt: int, token: str) -> int | None:
        """Answer the one question that the end of a slot asks."""
        return self.standing(plan_time, attempt, token)


class MemoryClaiming(Claiming):
    """The scheduler's claims, which find what is due in memory."""

    def __init__(self, slots: Any, ledger: Any, drafts: ScheduleDrafts, runner: str, meter: Meter) -> None:
        super().__init__(cast(Any, None), ledger, drafts, runner, ABLE, meter)
        self._slots = slots

    async def claim_due(self, limit: int) -> list[Held]:
        """Look once for what is due."""
        now, rows = await self._slots.due()
        return await self._claim(rows, now) if rows else []

    async def _still_due(self, rows: Sequence[DueRow]) -> tuple[list[DueRow], datetime]:
        now, found = await self._slots.due()
        return found, now


class MemoryTakingBack(TakingBack):
    """The scheduler's second looks, which find slots in memory."""

    def __init__(self, slots: Any, claiming: Claiming, meter: Meter) -> None:
        super().__init__(cast(Any, None), claiming, ABLE, meter)
        self._slots = slots

    async def _found(self, limit: int) -> tuple[datetime, list[Any]]:
        now, rows = await self._slots.to_take_back()
        return now, rows


class MemorySlotLeases(SlotLeases):
    """The scheduler's leases on slots in memory."""

    def __init__(self, slots: MemorySlots, ledger: Any, drafts: ScheduleDrafts, now: Callable[[], float]) -> None:
        super().__init__(cast(Any, slots), ledger, drafts)
        self._slots = slots
        self._clock = now

    async def renew(self, held: list[Held]) -> list[Held]:
        """Renew leases and return those that are lost."""
        asked, lost = self._clock(), []
        for one in held:
            if self._slots.renew(one):
                one.renewed_at = asked
            else:
                lost.append(one)
        return lost
