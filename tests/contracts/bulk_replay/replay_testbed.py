"""A ledger with a history that has everything a replay must get right, and what replays it as tasks of any driver."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.bulk_replay.organization import BulkFolds, Driving, Reached, SparkDrivers
from noetl.spark.bulk_replay.shard import answered
from noetl.spark.bulk_replay.shard_plan import EventLakes, InLake
from noetl.spark.bulk_replay.state import BulkReplay
from noetl.spark.bulk_replay.verification import BulkVerifier
from noetl.spark.bulk_replay.work import Asked, BulkWork, LakeFile
from noetl.spark.drivers.process import Answering
from noetl.spark.drivers.protocol import RunProgram, WorkResult
from noetl.spark.lake.parquet_files import measured
from noetl.spark.lake.storage import Lake
from noetl.spark.source.payload_store import open_store
from noetl.spark.source.upcasters import as_batch
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run
from noetl.testing.servers.spark import SharedDrivers

OWN, NEIGHBOUR = Scope("acme", "care"), Scope("globex", "care")
POSTED = "business.invoice.posted"
IDS = SnowflakeGenerator(29, lambda: time.time_ns() // 1_000_000)
_NUMBERS = itertools.count(1)


@business_object("invoice", events=[POSTED])
def invoice(row: Row | None, event: Event) -> Row | None:
    """Add up postings; the event's own values are changed on the way, which no other event may notice."""
    if event.meta["cents"] < 0 and row is None:
        return None
    row = row or {"cents": 0, "postings": 0, "by": []}
    event.meta["cents"] += 1
    row["cents"] += event.meta["cents"]
    row["postings"] += 1
    row["by"] = [*row["by"], event.producer]
    return row


def registry() -> FoldRegistry:
    """Return the built-in folds and one of a user's."""
    folds = FoldRegistry()
    folds.add(invoice)
    return folds


def upcasters() -> Upcasters:
    """Return the step from euros to cents."""
    found = Upcasters()
    found.register(f"noetl.{POSTED}", 1, _cents)
    return found


def _cents(event: Event) -> Event:
    return msgspec.structs.replace(event, meta={"cents": event.meta["euros"] * 100}, schema_version=2)


@dataclass(frozen=True)
class ReplayTestbed:
    """A ledger, what a single process makes of it, and where Spark's tasks would look for it."""

    database: Database
    found: Projections
    reach: dict[str, Any]
    lake_root: str

    def bulk(
        self,
        drivers: SparkDrivers,
        lakes: EventLakes | None = None,
        reached: Reached | None = None,
        *,
        users: bool = True,
    ) -> tuple[BulkReplay, BulkVerifier]:
        """Return what does the same with such drivers, with the users' folds and upcasters or without."""
        found = self.found
        folds, steps = (registry(), upcasters()) if users else (FoldRegistry(), Upcasters())
        mint = _NUMBERS.__next__
        bulk = BulkFolds(drivers, self.reach, found.history, self.database, steps, mint, lakes, payloads=found.payloads)
        return (
            BulkReplay(bulk, found.history, self.database, found.payloads, folds, steps),
            BulkVerifier(
                bulk, found.history, found.payloads, found.store, folds, steps, database=self.database, reached=reached
            ),
        )


def open_testbed(database: Database, ledger: PostgresLedger, directory: Path) -> ReplayTestbed:
    """Connect to the ledger of a test, with payloads in a directory that tasks reach as well."""
    url = f"file://{directory / 'payloads'}"
    payloads: PayloadStore = open_store(url)
    found = connect(database, ledger, payloads=payloads, folds=registry(), upcasters=upcasters())
    reach = {"database_url": database.url, "as_roles": True, "payloads_url": url}
    return ReplayTestbed(database, found, reach, str(directory / "lake"))


def minting(days_ago: int) -> Callable[[], int]:
    """Ids as if it were so many days ago."""
    moment = datetime.now(UTC) - timedelta(days=days_ago)
    milliseconds = itertools.count(int(moment.timestamp() * 1000))
    return SnowflakeGenerator(30, milliseconds.__next__).mint


async def write_history(ledger: PostgresLedger) -> None:
    """Write runs of now and of a year ago, objects fed by several executions in two schema versions, and a neighbour's."""
    old = minting(365)
    for scope in (OWN, NEIGHBOUR):
        drafts = Drafts(scope, IDS.mint)
        await framed_run(ledger, Drafts(scope, old), 2)
        for number in range(4):
            await framed_run(ledger, drafts, 2, ended=number != 3)
            # The schema changes midway, and an object hears of several executions.
            given = {"schema_version": 2, "meta": {"cents": 5}} if number > 1 else {"meta": {"euros": 2}}
            for name in ("invoice/1", f"invoice/{number + 2}"):
                posted = drafts.business(name, IDS.mint(), POSTED, **given)
                await ledger.append(posted.stream, [posted])


class InProcess:
    """Runs the tasks of a bulk replay one after another in this process, in the place of Spark."""

    def __init__(self, lake_root: str = "") -> None:
        self._lake = Lake(lake_root)

    @asynccontextmanager
    async def for_(self, code_digest: str, bundle: bytes, organization: str) -> AsyncIterator[Driving]:
        """Hold it."""
        yield self

    async def do(self, errand: RunProgram, answer: Answering | None = None) -> WorkResult:
        """Do all parts, in threads of their own, since they know no event loop."""
        asked = msgspec.msgpack.decode(errand.arguments["asked"], type=Asked)
        work = BulkWork(asked=asked, reach=errand.reach, lake=self._lake, progress=None)
        answers = [msgspec.msgpack.encode(await asyncio.to_thread(answered, work, part)) for part in asked.parts]
        return WorkResult(task_id=errand.id, attempt=1, status="ok", metrics={"answers": answers})


class OnSpark:
    """Drivers of the test process, whose questions are answered in the test's own loop."""

    def __init__(self, shared: SharedDrivers) -> None:
        self._shared = shared

    @asynccontextmanager
    async def for_(self, code_digest: str, bundle: bytes, organization: str) -> AsyncIterator[Driving]:
        """Hold the one that serves all organizations: two would compete for the cores of a cluster."""
        async with self._shared.for_(code_digest, bundle, "every organization") as held:
            yield _Held(held, self._shared)


class _Held:
    def __init__(self, held: Any, shared: SharedDrivers) -> None:
        self._held = held
        self._shared = shared

    async def do(self, errand: RunProgram, answer: Answering | None = None) -> WorkResult:
        here = asyncio.get_running_loop()
        assert answer is not None

        async def there(question: dict[str, Any]) -> dict[str, Any]:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(cast("Any", answer)(question), here))

        return cast("WorkResult", await self._shared.there(self._held._driver.do(errand, there)))


class FilesOfEvents:
    """An event lake whose files a test lays out itself."""

    def __init__(self, mark: Mark, files: Iterable[LakeFile]) -> None:
        self._found = InLake(mark, tuple(files))

    async def pinned(self, scope: Scope) -> InLake:
        """Return its files, whoever asks."""
        return self._found


def write_file(root: str, name: str, events: list[Event], group_rows: int = 1 << 20) -> LakeFile:
    """Write events as a file of a lake, in their order."""
    path = Path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([as_batch(events)]), path, row_group_size=group_rows)
    shards = [event.shard for event in events]
    entry = msgspec.structs.replace(measured(Lake(root), [name])[0], stats={})
    return LakeFile(entry, min(shards), max(shards))
