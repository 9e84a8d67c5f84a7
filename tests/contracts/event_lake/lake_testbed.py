"""The event lake of an organization on the ledger of a test, worked on by the Spark of the test process or by another."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import Streamed
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.spark.event_lake.lake import EventLake
from noetl.runtime.spark.event_lake.programs import Driving, SparkDrivers
from noetl.spark.drivers.process import Answering
from noetl.spark.drivers.protocol import RunProgram, WorkResult
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import Row, TestedPipelines, connected
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.samples.drafts import PRODUCER, Drafts
from noetl.testing.samples.runs import framed_run
from noetl.testing.servers.spark import SharedDrivers

NOTED = "noetl.business.noted"
UPCASTERS = f"{__name__}:register_noted"


def register_noted(upcasters: Upcasters) -> None:
    """Register the step of a schema of the tests' own."""
    upcasters.register(NOTED, 1, _renamed)


def _renamed(event: Event) -> Event:
    return msgspec.structs.replace(event, schema_version=2, meta={"amount": event.meta["sum"], "unit": "cent"})


class LakeTestbed:
    """One organization, its ledger and its lake."""

    def __init__(
        self, playbooks: Playbooks, engine: TaskEngine, scope: Scope, lake_root: str, drivers: SparkDrivers
    ) -> None:
        self.scope = scope
        self._drivers = drivers
        settings = Settings.model_validate(
            {
                "runtime": {
                    "home": playbooks.home,
                    "tenant_id": scope.tenant_id,
                    "organization_id": scope.organization_id,
                },
                "lake": {"location": lake_root},
                "event_lake": {"trigger_seconds": 0.2, "facts": False},
            }
        )
        self.runtime = replace(playbooks.runtime, settings=settings, scope=scope)
        self.tested: TestedPipelines = connected(engine, self.runtime, scope, Lake(lake_root), playbooks.home / "dag")
        own = self.runtime
        self.streamed = Streamed(
            scope,
            self.tested.pipelines,
            own.database,
            own.ledger,
            own.payloads,
            own.ids.mint,
            own.ids.mint_many,
            PRODUCER,
        )
        self.drafts = Drafts(scope, own.ids.mint)
        self.lake = EventLake(own, scope, self.streamed, drivers)

    def upgraded(self) -> EventLake:
        """Return the lake as a process sees it in which the upcasters of the tests are installed."""
        upcasters = Upcasters()
        register_noted(upcasters)
        settings = self.runtime.settings.model_copy(
            update={"projections": self.runtime.settings.projections.model_copy(update={"upcasters": (UPCASTERS,)})}
        )
        runtime = replace(self.runtime, settings=settings, upcasters=upcasters)
        return EventLake(runtime, self.scope, self.streamed, self._drivers)

    async def write(self, runs: int) -> None:
        """Append the events of some executions, all at once."""
        await asyncio.gather(*(framed_run(self.runtime.ledger, self.drafts) for _ in range(runs)))

    async def note(self, version: int, count: int) -> None:
        """Append events of the tests' own schema in one of its versions."""
        meta: dict[str, Any] = {"sum": 5} if version == 1 else {"amount": 5, "unit": "cent"}
        given = {"schema_name": NOTED, "schema_version": version, "meta": meta}
        run = self.runtime.ids.mint()
        drafts = [self.drafts.business("invoice/9", run, "business.noted", **given) for _ in range(count)]
        await self.runtime.ledger.append(drafts[0].stream, drafts)

    async def rows(self) -> list[Row]:
        """Return the rows of the lake as a reader sees them."""
        return await self.tested.rows("noetl_events")

    def written(self) -> list[Path]:
        """Return every data file below the lake's root, visible or not."""
        return list(Path(self.runtime.settings.lake.location or "").rglob("*.parquet"))

    async def files(self) -> list[str]:
        """Return the files that the lake consists of."""
        datasets: Datasets = self.tested.pipelines.datasets
        view = await self.tested.view("noetl_events")
        manifests = await datasets.manifests(self.scope, view.partitions)
        return [entry.path for manifest in manifests for entry in manifest.files]


def fresh_scope(tenant: str) -> Scope:
    """Return an organization whose name no other test has: all tests of a process share one lake."""
    return Scope(f"{tenant}-{uuid.uuid4().hex[:8]}", "main")


class AnsweringDrivers:
    """The drivers of the test process for programs, whose questions are answered in the test's own loop."""

    def __init__(self, shared: SharedDrivers) -> None:
        self._shared = shared

    @asynccontextmanager
    async def for_(self, code_digest: str, bundle: bytes, organization: str) -> AsyncIterator[Driving]:
        """Hold a driver."""
        async with self._shared.for_(code_digest, bundle, organization) as driver:
            yield _AnsweringDriver(driver, self._shared)


class _AnsweringDriver:
    def __init__(self, driver: Any, shared: SharedDrivers) -> None:
        self._driver = driver
        self._shared = shared

    async def do(self, errand: RunProgram, answer: Answering | None = None) -> WorkResult:
        """Do an errand in the drivers' loop and answer it in the caller's."""
        here = asyncio.get_running_loop()
        assert answer is not None

        async def there(question: dict[str, Any]) -> dict[str, Any]:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(cast("Any", answer)(question), here))

        return cast("WorkResult", await self._shared.there(self._driver._driver.do(errand, there)))

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let a program know that it should end."""
        await self._driver.ask_to_stop(job_tag)
