"""Schedules by name: people make, change, pause, resume and remove them, and see what they did and will do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from noetl.errors import InputError, NotFound, VersionConflict
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.model.stream import Scope
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.planning import first_plan, following
from noetl.services.schedule.rows import SCHEDULE_COLUMNS, SLOT_COLUMNS, ScheduleRow, SlotRow, as_schedule, as_slot
from noetl.services.schedule.spec import Definition, Kind

_BY_NAME: Final = f"SELECT {SCHEDULE_COLUMNS} FROM noetl.schedule AS c WHERE c.name = $1 AND c.removed_at IS NULL"  # noqa: S608
_BY_ID: Final = f"SELECT {SCHEDULE_COLUMNS} FROM noetl.schedule AS c WHERE c.schedule_id = $1"  # noqa: S608
_LIST: Final = f"""
SELECT {SCHEDULE_COLUMNS} FROM noetl.schedule AS c
WHERE c.removed_at IS NULL AND ($1::text IS NULL OR c.kind = $1) AND c.name > $2 ORDER BY c.name, c.schedule_id LIMIT $3
"""  # noqa: S608
_SLOTS: Final = f"""
SELECT {SLOT_COLUMNS} FROM noetl.cron_slot AS s
WHERE s.schedule_id = $1 AND ($2::timestamptz IS NULL OR s.plan_time < $2) ORDER BY s.plan_time DESC LIMIT $3
"""  # noqa: S608
_LAST: Final = f"""
SELECT {SLOT_COLUMNS} FROM unnest($1::uuid[]) AS own (schedule_id) CROSS JOIN LATERAL (
    SELECT * FROM noetl.cron_slot AS one WHERE one.schedule_id = own.schedule_id ORDER BY one.plan_time DESC LIMIT 1
) AS s
"""  # noqa: S608


class Schedules:
    """The schedules of all organizations, each seen only within its own."""

    def __init__(
        self, database: Database, ledger: Ledger, mint_many: Callable[[int], list[int]], producer: str
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafts = ScheduleDrafts(mint_many, producer)

    async def put(self, scope: Scope, wanted: Definition, *, by: str) -> tuple[ScheduleRow, bool]:
        """Make a schedule, or change the one of this name; return it, and whether anything is other than before."""
        wanted.named.checked()
        wanted.spec.checked()

        def decide(known: ScheduleRow | None, now: datetime) -> Said | None:
            stands = known is not None and known.removed_at is None
            if known is not None and stands and (known.kind, known.target, known.spec) == _declared(wanted):
                return None
            if known is not None and stands and known.kind != wanted.kind:
                raise InputError(
                    f"{wanted.named.name} is a schedule of the kind {known.kind}", hint="take another name"
                )
            # A clock that was set back lets nothing happen twice.
            coming = first_plan(wanted.spec, now, None if known is None else known.last_plan)
            return _set(scope, wanted, coming, by, "schedule.changed" if stands else "schedule.created")

        schedule_id = wanted.named.schedule_id(scope)
        changed = await self._record(scope, schedule_id, decide)
        return await self.by_id(scope, schedule_id), changed

    async def pause(self, scope: Scope, name: str, *, by: str) -> ScheduleRow:
        """Let a schedule start nothing for now; to pause it twice changes nothing."""
        schedule_id = (await self.get(scope, name)).schedule_id

        def decide(known: ScheduleRow | None, now: datetime) -> Said | None:
            return None if _there(known, name).paused else Said("schedule.paused", {"by": by})

        await self._record(scope, schedule_id, decide)
        return await self.by_id(scope, schedule_id)

    async def resume(self, scope: Scope, name: str, *, by: str) -> ScheduleRow:
        """Let a schedule go on with the next moment; what it missed while it was paused is not caught up."""
        schedule_id = (await self.get(scope, name)).schedule_id

        def decide(known: ScheduleRow | None, now: datetime) -> Said | None:
            row = _there(known, name)
            coming = first_plan(row.spec, now, row.last_plan)
            return Said("schedule.resumed", {"next_plan": time_text(coming), "by": by}) if row.paused else None

        await self._record(scope, schedule_id, decide)
        return await self.by_id(scope, schedule_id)

    async def remove(self, scope: Scope, name: str, kind: Kind | None = None, *, by: str) -> ScheduleRow:
        """Remove a schedule; what it started goes on."""
        found = await self.get(scope, name)
        if kind is not None and found.kind != kind:
            raise InputError(f"{name} is a schedule of the kind {found.kind}", hint=_REMOVED_OTHERWISE[found.kind])

        def decide(known: ScheduleRow | None, now: datetime) -> Said | None:
            return None if known is None or known.removed_at is not None else Said("schedule.removed", {"by": by})

        await self._record(scope, found.schedule_id, decide)
        return await self.by_id(scope, found.schedule_id)

    async def get(self, scope: Scope, name: str) -> ScheduleRow:
        """Return a schedule by its name, which one of another scope may have too if its scope is named: `name@kind/id`."""
        plain, _, own = name.partition("@")
        async with self._database.transaction(scope) as connection:
            rows = [as_schedule(row) for row in await connection.fetch(_BY_NAME, plain)]
        found = [row for row in rows if not own or own == f"{row.named.scope_kind}/{row.named.scope_id}"]
        if not found:
            raise NotFound(f"there is no schedule {name}", hint="`noetl schedule list` shows those there are")
        if len(found) > 1:
            options = ", ".join(f"{plain}@{row.named.scope_kind}/{row.named.scope_id}" for row in found)
            raise InputError(f"several schedules are called {plain}", hint=f"say which: {options}")
        return found[0]

    async def by_id(self, scope: Scope, schedule_id: str) -> ScheduleRow:
        """Return a schedule, also one that was removed."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_BY_ID, schedule_id)
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id}")
        return as_schedule(row)

    async def listed(
        self, scope: Scope, kind: Kind | None = None, after: str = "", limit: int = 100
    ) -> list[tuple[ScheduleRow, SlotRow | None]]:
        """Return schedules by name, each with its last slot."""
        async with self._database.transaction(scope) as connection:
            rows = [as_schedule(row) for row in await connection.fetch(_LIST, kind, after, limit)]
            slots = await connection.fetch(_LAST, [row.schedule_id for row in rows])
        last = {row["schedule_id"]: as_slot(row) for row in slots}
        return [(row, last.get(row.schedule_id)) for row in rows]

    async def slots(
        self, scope: Scope, schedule_id: str, before: datetime | None = None, limit: int = 20
    ) -> list[SlotRow]:
        """Return slots of a schedule, the newest moment first."""
        async with self._database.transaction(scope) as connection:
            return [as_slot(row) for row in await connection.fetch(_SLOTS, schedule_id, before, limit)]

    async def _record(
        self, scope: Scope, schedule_id: str, decide: Callable[[ScheduleRow | None, datetime], Said | None]
    ) -> bool:
        """Record what is decided on the row as it is; whoever was quicker makes it decide again."""
        while True:
            async with self._database.transaction(scope) as connection:
                known, now = await _read(connection, schedule_id)
            said = decide(known, now)
            if said is None:
                return False
            told = Told(scope, schedule_id, 0 if known is None else known.version, (said,))
            reach("schedule.before_record")
            try:
                await self._ledger.transact(Transition(tuple(self._drafts.appends([told]))))
            except VersionConflict:
                continue
            reach("schedule.after_record")
            return True


_REMOVED_OTHERWISE: Final[dict[Kind, str]] = {
    "source": "it goes with the job of its DAG: deploy and activate a version without it, or pause the schedule",
    "platform": "it belongs to the platform: pause it",
    "playbook": "",
}


async def _read(connection: Connection, schedule_id: str) -> tuple[ScheduleRow | None, datetime]:
    row = await connection.fetchrow(_BY_ID, schedule_id)
    now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return None if row is None else as_schedule(row), now


def _there(known: ScheduleRow | None, name: str) -> ScheduleRow:
    if known is None or known.removed_at is not None:
        raise NotFound(f"there is no schedule {name}")
    return known


def _declared(wanted: Definition) -> tuple[Any, ...]:
    return wanted.kind, msgspec.json.decode(msgspec.json.encode(wanted.target)), wanted.spec


def _set(scope: Scope, wanted: Definition, coming: datetime, by: str, kind: str) -> Said:
    named, spec = wanted.named, msgspec.structs.asdict(wanted.spec)
    backoff = list(spec.pop("retry_backoff"))
    meta = {
        "schedule_id": named.schedule_id(scope),
        "name": named.name,
        "kind": wanted.kind,
        "scope_kind": named.scope_kind,
        "scope_id": named.scope_id,
        **spec,
        "next_plan": time_text(coming),
        "by": by,
    }
    return Said(kind, meta, context={"target": wanted.target, "retry_backoff": backoff})


def coming_plans(row: ScheduleRow, count: int) -> list[datetime]:
    """Return the next moments of a schedule; none while it is paused."""
    if row.paused or row.removed_at is not None:
        return []
    plans = [row.next_plan]
    while len(plans) < count:
        plans.append(following(row.spec, plans[-1]))
    return plans[:count]
