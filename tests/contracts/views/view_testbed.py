"""A process that runs views, on a database and a Spark driver of the test: what it appends, keeps, verifies and shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import NoetlError, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.language.view.document import parse_view
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.services.views.barriers import Barrier
from noetl.services.views.run import SparkDrivers, Surroundings, ViewRun
from noetl.services.views.sinks.own_rows import OwnRows
from noetl.services.views.sinks.port import Sink
from noetl.services.views.verification import Verified, Verifying
from noetl.services.views.versions import Version, Versions, ViewLease
from noetl.spark.session.options import SparkOptions
from noetl.testing.samples.drafts import PRODUCER, Drafts

SCOPE, NEIGHBOUR = Scope("acme", "care"), Scope("globex", "care")
IDS = SnowflakeGenerator(29, lambda: time.time_ns() // 1_000_000)
CITIES = """
kind: View
name: cities
source: {events: business.*}
sql: |
  SELECT get_json_object(meta, '$.city') AS city, count(*) AS notes,
         sum(CAST(get_json_object(meta, '$.amount') AS BIGINT)) AS amount
  FROM events GROUP BY 1
keys: city
keep: amount > 0
barrier_interval_ms: 1
"""


UPCASTERS = f"{__name__}:register_noted"


def register_noted(upcasters: Upcasters) -> None:
    """Register the step of the tests' own schema: in its first version every note was about Rome."""
    upcasters.register("noetl.business.noted", 1, _renamed)


def _renamed(event: Event) -> Event:
    meta = {"city": event.meta.get("city", "rome"), "amount": event.meta.get("amount", event.meta.get("sum"))}
    return msgspec.structs.replace(event, schema_version=2, meta=meta)


class ViewTestbed:
    """One process with its views."""

    def __init__(
        self, database: Database, ledger: PostgresLedger, drivers: SparkDrivers, options: SparkOptions
    ) -> None:
        self.database, self.ledger, self.drivers = database, ledger, drivers
        self.payloads = MemoryPayloadStore()
        drafting = Drafting(lambda count: [IDS.mint() for _ in range(count)], PRODUCER)
        self.versions = Versions(database, ledger, self.payloads, drafting)
        self.around = Surroundings(
            versions=self.versions,
            drivers=drivers,
            sink_of=self.sink,
            fetch=self.payloads.fetch,
            pin=_no_datasets,
            reach={"database_url": database.url, "as_roles": True, "upcasters": [UPCASTERS]},
            master=options.master,
            checkpoint=str(Path(options.home, "checkpoints")),
            partitions=2,
        )

    def sink(self, scope: Scope, version: Version, lease: ViewLease | None) -> Sink:
        return OwnRows(self.database, scope, version.version_id, version.definition, lease)

    async def deploy(self, text: str, scope: Scope = SCOPE, **files: str) -> Version:
        content = {name.replace("_py", ".py"): body.encode() for name, body in files.items()}
        return (await self.versions.deploy(scope, parse_view(text, files=content), "tests"))[0]

    async def claimed(self, view: str, scope: Scope = SCOPE) -> tuple[Version, ViewLease]:
        """Take a view that nobody runs, the version that is being built first."""
        found = [one for one in await self.versions.of(scope, view) if one.status in ("building", "current")]
        version = found[-1]
        lease = await self.versions.claim(scope, version, "tests", 600.0)
        assert lease is not None
        return version, lease

    async def caught_up(self, view: str, scope: Scope = SCOPE, tries: int = 3) -> Barrier:
        """Run a view up to where the ledger is now; a machine with much to do may lose a Python worker or two."""
        version, lease = await self.claimed(view, scope)
        run = ViewRun(self.around, version, lease)
        try:
            barrier = await run.keep(await self.ledger.head())
        except NoetlError as problem:
            await self.versions.end(lease, str(problem))
            if isinstance(problem, Unavailable) and tries > 1:
                return await self.caught_up(view, scope, tries - 1)
            raise
        await self.versions.end(lease)
        assert barrier is not None
        return barrier

    async def note(self, city: str, amount: int, scope: Scope = SCOPE, **fields: Any) -> None:
        await self.ledger.transact(noted(city, amount, scope, **fields))

    async def note_as(self, version: int, amount: int) -> None:
        """Append an event of the tests' own schema in one of its versions."""
        meta = {"sum": amount} if version == 1 else {"city": "rome", "amount": amount}
        drafts = Drafts(SCOPE, IDS.mint)
        execution_id = IDS.mint()
        draft = drafts.business(f"note/{execution_id}", execution_id, schema_version=version, meta=meta)
        await self.told(Transition((Append(draft.stream, [draft]),)))

    async def told(self, change: Transition) -> None:
        """Append, also where connections were cut off."""
        while True:
            with suppress(Unavailable):
                await self.ledger.transact(change)
                return

    async def reached(self, version: Version, scope: Scope = SCOPE, held: Any = None) -> None:
        """Wait until a view that is followed covers what the ledger has now; a transaction that is held stays awake."""
        head, sink = await self.ledger.head(), self.sink(scope, version, None)
        changed = asyncio.Event()
        while True:
            with suppress(Unavailable):
                barrier = await sink.standing()
                if barrier is not None and Mark.parse(barrier.mark).covers(head):
                    return
            if held is not None:
                await held.execute("SELECT 1")
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.2)

    async def rows(self, view: str, scope: Scope = SCOPE) -> list[dict[str, Any]]:
        version = await self.versions.serving(scope, view)
        return list((await self.sink(scope, version, None).held()).rows.values())

    async def verified(self, view: str, scope: Scope = SCOPE) -> Verified:
        return await Verifying(self.around).verify(scope, await self.versions.serving(scope, view), IDS.mint() % 10**9)


def noted(city: str, amount: int, scope: Scope = SCOPE, **fields: Any) -> Transition:
    drafts = Drafts(scope, IDS.mint)
    execution_id = fields.pop("execution_id", None) or IDS.mint()
    draft = drafts.business(f"note/{execution_id}", execution_id, meta={"city": city, "amount": amount}, **fields)
    return Transition((Append(draft.stream, [draft]),))


async def _no_datasets(scope: Scope, dataset: str, mark: Mark) -> dict[str, Any]:
    raise NotFound(f"there is no dataset {dataset}")


@asynccontextmanager
async def standing(
    database: Database, drivers: SparkDrivers, options: SparkOptions, kind: type[ViewTestbed] = ViewTestbed
) -> AsyncIterator[ViewTestbed]:
    ledger = PostgresLedger(database, listen=False)
    try:
        yield kind(database, ledger, drivers, options)
    finally:
        await ledger.close()
