"""One row of every kind that is leased, made by real events, and what its holders and reapers do to it.

Where the product has code that claims, renews, ends or takes back such a row, that code is called. Outbox rows and shards are
leased by the operations that the outbox and the shares of shards are made of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import replace as replaced
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace
from tests.contracts.views.view_testbed import CITIES
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed
from tests.integration.services.schedule.schedule_testbed import ScheduleTestbed

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant
from noetl.engine.dispatch.reports.commands import tag_of
from noetl.engine.dispatch.stores import postgres_stores
from noetl.errors import Conflict, KeyReused
from noetl.kernel.leases import operations
from noetl.kernel.leases.kinds import COMMAND, DELIVERY, FRAME, OUTBOX, SHARD, SLOT, TASK, VIEW, Kind
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.language.view.document import parse_view
from noetl.model.event import time_text
from noetl.model.ids import SnowflakeGenerator
from noetl.model.lease import Proof
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.model.task import TaskGrant, TaskReport
from noetl.services.alerts.deliveries import Deliveries, Lease
from noetl.services.alerts.event_drafts import AlertWriting
from noetl.services.schedule.drafts import Said, ScheduleDrafts
from noetl.services.schedule.held_slot import Held
from noetl.services.schedule.slot_leases import SlotLeases
from noetl.services.views.versions import Versions, ViewLease, hold
from noetl.testing.samples.drafts import PRODUCER
from noetl.testing.samples.pipelines import Piped

IDS = SnowflakeGenerator(33, lambda: time.time_ns() // 1_000_000)
SECONDS = 600.0
"""How long leases last: longer than any run of the machine, so that they end only when it says so."""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: leased, path: tests/leased}}
workflow:
  - step: work
{loop}
    tool: {{kind: python, code: "result = 1"}}
"""
LOOP = f"""
    loop:
      in: "{{{{{{{{ range(500) | list }}}}}}}}"
      iterator: n
      spec: {{{{mode: parallel, max_in_flight: 1, frame: {{{{max_rows: 500, lease_seconds: {SECONDS}, max_attempts: 99}}}}}}}}
"""
DAG = f"""
name: shop
jobs:
  - name: orders
    operator: made_up
    runtime: dispatcher
    max_attempts: 99
    heartbeat_timeout_seconds: {SECONDS:.0f}
publish: [orders]
"""


class LeasedRow:
    """One row; `begin` makes it in an organization of its own, or frees the one there is."""

    kind: ClassVar[Kind]
    most: ClassVar[int] = 90
    """How often it is granted in one run of the machine, at most."""
    late: ClassVar[bool] = True
    """Whether a holder's end of its attempt counts after the lease ran out, as long as nobody else has the row."""
    reaped: ClassVar[bool] = False
    """Whether a lease that ran out is recorded as lost before anybody can claim the row again."""
    fenced: ClassVar[bool] = False
    """Whether holders write under their lease, besides ending it."""
    repeats: ClassVar[bool] = False
    """Whether to say the end of an attempt once more is answered as it was the first time."""
    role: ClassVar[Role] = "runtime"

    def __init__(self, database: Database, ledger: PostgresLedger, home: Path) -> None:
        self.database, self.ledger, self.home = database, ledger, home
        self.drafting = Drafting(IDS.mint_many, PRODUCER)
        self.scope = Scope("acme", "care")

    def recorded(self, holder: str) -> str:
        """Return what the row says of a holder."""
        return holder

    async def begin(self, number: int) -> None:
        """Make the row."""
        self.scope = Scope(f"acme{number}", "care")
        await self.make()

    async def make(self) -> None:
        """Record what brings the row about."""
        raise NotImplementedError

    async def claim(self, holder: str) -> Any:
        """Try to get a lease, and return what a holder gets; None if there is nothing to be had."""
        raise NotImplementedError

    async def renew(self, grant: Any) -> bool:
        """Make a lease last longer."""
        raise NotImplementedError

    async def write(self, grant: Any) -> bool:
        """Write under a lease without ending it."""
        raise NotImplementedError

    async def give_back(self, grant: Any) -> bool:
        """End an attempt so that the row is free at once."""
        raise NotImplementedError

    async def reap(self) -> None:
        """Take back what was lost."""
        raise NotImplementedError

    def proof(self, grant: Any) -> Proof:
        """Return what a holder shows."""
        proof: Proof = grant.lease.proof
        return proof

    def forged(self, grant: Any, attempt: int, token: str) -> Any:
        """Return what a holder would have that shows another attempt or token."""
        return replace(grant, attempt=attempt, token=token)

    async def end(self) -> None:
        """Leave nothing to others that they could take for theirs."""

    @property
    def which(self) -> str:
        """What finds the row among those of its organization."""
        return "true"

    async def rows(self, columns: str) -> list[Any]:
        """Read the row."""
        scope = None if self.kind is SHARD else self.scope
        query = f"SELECT {columns} FROM noetl.{self.kind.table} AS known WHERE {self.which}"
        async with self.database.transaction(scope, self.role) as connection:
            return list(await connection.fetch(query))

    async def move_end(self, seconds: float) -> None:
        """Let the lease end so many seconds later than it would, or earlier."""
        scope = None if self.kind is SHARD else self.scope
        async with self.database.transaction(scope, self.role) as connection:
            await connection.execute(
                f"UPDATE noetl.{self.kind.table} AS known SET lease_until = lease_until + make_interval(secs => $1)"
                f" WHERE {self.which}",
                seconds,
            )


async def stands(change: Awaitable[Any]) -> bool:
    """Tell whether a change was accepted."""
    try:
        await change
    except (Conflict, KeyReused):
        return False
    return True


class LeasedCommand(LeasedRow):
    """A step's work, through dispatch and the reaper."""

    kind, most, late, reaped, fenced, repeats = COMMAND, 4, False, True, True, True
    loop = ""

    def __init__(self, database: Database, ledger: PostgresLedger, home: Path) -> None:
        super().__init__(database, ledger, home)
        self.engine = Engine(
            postgres_stores(database, ledger), ledger, MemoryPayloadStore(), IDS.mint, IDS.mint_many, PRODUCER, kinds=("python",),
            idle_seconds=1e6, command_lease_seconds=SECONDS,
        )  # fmt: skip

    async def make(self) -> None:
        self.dispatch = self.engine.dispatch(self.scope)
        entry = (await self.engine.catalog.register(self.scope, PLAYBOOK.format(loop=self.loop))).entry
        await self.engine.start(self.scope, entry, requested_by="tests")

    async def claim(self, holder: str) -> CommandGrant | None:
        return next(iter(await self.dispatch.claim(holder, 1, 0.0)), None)

    async def renew(self, grant: Any) -> bool:
        return await self.dispatch.heartbeat([grant.lease]) == []

    async def write(self, grant: Any) -> bool:
        return await stands(self.dispatch.started(grant, "application", tag_of(grant)))

    async def give_back(self, grant: Any) -> bool:
        return await stands(self.dispatch.give_back(grant, "it stopped", delay_seconds=0.0))

    async def reap(self) -> None:
        await self.engine.reaper.sweep()


class LeasedFrame(LeasedCommand):
    """Rows of a loop, whose slot stays with one worker."""

    kind, most = FRAME, 90
    loop = LOOP.format()

    async def make(self) -> None:
        await super().make()
        (self.slot,) = await self.dispatch.claim("slot", 1, 0.0)
        self.checkpoints = 0

    async def claim(self, holder: str) -> Any:
        return await self.dispatch.next_frame(self.slot, holder)

    async def write(self, grant: FrameGrant) -> bool:
        self.checkpoints += 1
        return await stands(self.dispatch.checkpoint(grant, {"done": self.checkpoints}))

    async def give_back(self, grant: FrameGrant) -> bool:
        return await stands(
            self.dispatch.fail_frame(grant, {"message": "it failed"}, max_attempts=99, worker=grant.worker)
        )


class LeasedTask(LeasedRow):
    """A task of a job, through the protocol of those who do tasks."""

    kind, late, reaped, fenced = TASK, False, True, True

    async def make(self) -> None:
        self.testbed = TaskTestbed(self.database, self.ledger, self.home, scope=self.scope, node=34)
        await self.testbed.deploy(DAG)

    async def claim(self, holder: str) -> TaskGrant | None:
        return next(iter(await self.testbed.tasks.claim(holder, ("dispatcher",), 1, 0.0)), None)

    async def renew(self, grant: TaskGrant) -> bool:
        return await self.testbed.tasks.heartbeat([grant.lease]) == []

    async def write(self, grant: TaskGrant) -> bool:
        return await stands(
            self.testbed.tasks.started(grant, "application", f"noetl-{grant.lease.task_id}-{grant.lease.attempt}")
        )

    async def give_back(self, grant: TaskGrant) -> bool:
        return await stands(self.testbed.tasks.fail(grant, TaskReport(status="error", error="no", retryable=True)))

    async def reap(self) -> None:
        await self.testbed.engine.reaper.sweep()

    def forged(self, grant: TaskGrant, attempt: int, token: str) -> TaskGrant:
        return replace(grant, lease=replace(grant.lease, attempt=attempt, token=token))


class LeasedSlot(LeasedRow):
    """A planned moment, through the parts of a scheduler: whoever looks takes back what was lost, and next claims it."""

    kind, reaped = SLOT, True

    async def make(self) -> None:
        self.testbed = ScheduleTestbed(self.database, self.ledger)
        self.leases = SlotLeases(self.database, self.ledger, ScheduleDrafts(IDS.mint_many, PRODUCER))
        row = await self.testbed.schedule(
            "leased", "0 0 1 1 *", scope=self.scope, max_attempts=99, retry_backoff=(0.0,),
            stale_timeout_seconds=SECONDS, catch_up_seconds=366 * 86_400.0,
        )  # fmt: skip
        await self.testbed.behind(row, timedelta(days=366))

    def recorded(self, holder: str) -> str:
        return f"{PRODUCER}/{holder}"

    async def claim(self, holder: str) -> Held | None:
        held = await self.testbed.scheduler(runner=holder).claim(100)
        return next((one for one in held or () if one.scope == self.scope), None)

    async def renew(self, grant: Held) -> bool:
        return await self.leases.renew([grant]) == []

    async def give_back(self, grant: Held) -> bool:
        meta = {
            "plan_time": time_text(grant.plan_time),
            "attempt": grant.attempt,
            "delay_seconds": 0,
            "error_code": "no",
        }
        return await stands(self.leases.end(grant, Said("slot.attempt_failed", meta, error="it failed")))

    async def reap(self) -> None:
        assert await self.claim("reaper") is None

    def proof(self, grant: Held) -> Proof:
        return grant.proof

    def forged(self, grant: Held, attempt: int, token: str) -> Held:
        return replaced(grant, attempt=attempt, token=token)


class LeasedDelivery(LeasedRow):
    """A message about an alert, through what a sender uses; it takes over what another one lost."""

    kind = DELIVERY

    async def make(self) -> None:
        self.deliveries = Deliveries(self.database, self.ledger, AlertWriting(self.drafting))
        meta = {
            "delivery_id": "11111111-1111-4111-8111-111111111111",
            "alert_id": "22222222-2222-4222-8222-222222222222",
            "channel": "hook",
            "channel_kind": "webhook",
            "severity": "critical",
            "occasion": "raised",
            "max_attempts": 99,
        }
        stream = self.scope.stream(f"delivery/{meta['delivery_id']}")
        draft = self.drafting.one(
            self.scope, stream, IDS.mint(), "delivery.created", stream.stream_id, meta=meta, context={"document": {}}
        )
        await self.ledger.transact(Transition((Append(stream, [draft], 0),)))

    async def claim(self, holder: str) -> Lease | None:
        return next(iter(await self.deliveries.lease(self.scope, holder, SECONDS, 1)), None)

    async def renew(self, grant: Lease) -> bool:
        return await self.deliveries.heartbeat([grant.sending(self.scope)]) == []

    async def give_back(self, grant: Lease) -> bool:
        return await stands(
            self.deliveries.failed(self.scope, grant, "no", kind="test", permanent=False, delay_seconds=0.0)
        )

    def proof(self, grant: Lease) -> Proof:
        return grant.sending(self.scope).proof


class LeasedView(LeasedRow):
    """A version of a view, through what runs views."""

    kind, fenced = VIEW, True

    async def make(self) -> None:
        self.versions = Versions(self.database, self.ledger, MemoryPayloadStore(), self.drafting)
        await self.versions.deploy(self.scope, parse_view(CITIES), "tests")

    async def claim(self, holder: str) -> ViewLease | None:
        due = await self.versions.due(self.scope)
        return await self.versions.claim(self.scope, due[0], holder, SECONDS) if due else None

    async def renew(self, grant: ViewLease) -> bool:
        return await self.versions.heartbeat([grant]) == []

    async def write(self, grant: ViewLease) -> bool:
        async with self.database.transaction(self.scope) as connection:
            return await stands(hold(connection, grant, grant.view))

    async def give_back(self, grant: ViewLease) -> bool:
        return await stands(self.versions.end(grant, "it failed", 0.0))

    def proof(self, grant: ViewLease) -> Proof:
        return grant.proof


class LeasedOutboxRow(LeasedRow):
    """What has to follow from an event."""

    kind = OUTBOX

    async def make(self) -> None:
        dag = Piped(self.scope)
        for change in (dag.requested(), dag.deployed(), dag.created("1")):
            await self.ledger.transact(change)

    async def claim(self, holder: str) -> Proof | None:
        async with self.database.transaction(self.scope) as connection:
            leased = await operations.claim(connection, self.kind, SECONDS, 1)
        return leased[0][0] if leased else None

    async def renew(self, grant: Proof) -> bool:
        async with self.database.transaction(self.scope) as connection:
            return grant in await operations.renew(connection, self.kind, [grant], [SECONDS])

    async def give_back(self, grant: Proof) -> bool:
        async with self.database.transaction(self.scope) as connection:
            return grant in await operations.give_back(connection, self.kind, [grant])

    def proof(self, grant: Proof) -> Proof:
        return grant


class LeasedShard(LeasedRow):
    """One shard of a role, whose others somebody keeps."""

    kind, fenced, role = SHARD, True, "relay"

    async def begin(self, number: int) -> None:
        async with self.database.transaction(None, self.role) as connection:
            await operations.claim(connection, SHARD, 1e6, SHARD_COUNT - 1, within=("relay",), holder="others")

    @property
    def which(self) -> str:
        return f"role = 'relay' AND shard = {SHARD_COUNT - 1}"

    async def claim(self, holder: str) -> Proof | None:
        async with self.database.transaction(None, self.role) as connection:
            leased = await operations.claim(connection, SHARD, SECONDS, 1, within=("relay",), holder=holder)
        return leased[0][0] if leased else None

    async def renew(self, grant: Proof) -> bool:
        async with self.database.transaction(None, self.role) as connection:
            return grant in await operations.renew(connection, SHARD, [grant], [SECONDS])

    async def write(self, grant: Proof) -> bool:
        async with self.database.transaction(None, self.role) as connection:
            return grant in await operations.hold(connection, SHARD, [grant])

    async def give_back(self, grant: Proof) -> bool:
        async with self.database.transaction(None, self.role) as connection:
            return grant in await operations.give_back(connection, SHARD, [grant])

    def proof(self, grant: Proof) -> Proof:
        return grant

    async def end(self) -> None:
        async with self.database.transaction(None, self.role) as connection:
            await connection.execute(
                "UPDATE noetl.shard_lease SET holder = NULL, lease_token = NULL, lease_until = NULL WHERE role = 'relay'"
            )


LEASED = (
    LeasedCommand, LeasedFrame, LeasedTask, LeasedOutboxRow, LeasedSlot, LeasedDelivery, LeasedView, LeasedShard,
)  # fmt: skip


async def together(row: LeasedRow, *holders: str) -> list[Any]:
    """Let several claim at once, and return what each got."""
    return await asyncio.gather(*map(row.claim, holders))
