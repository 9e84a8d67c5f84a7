"""An engine of tasks with changes on it: what the killed processes and the test itself run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.tasks.driven_tasks import Driven, open_engine

from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.changes.backfills import requests
from noetl.pipelines.changes.engine import Changes
from noetl.runtime.assembly.engine import producer_of

FIRST, LAST = 10, 22
"""The days that are filled."""


@dataclass(frozen=True)
class Changing:
    """One process's engine and what changes data on it."""

    driven: Driven
    changes: Changes

    @property
    def scope(self) -> Scope:
        """The organization."""
        return self.driven.runtime.scope

    async def act(self, what: str) -> None:
        """Do one thing a user asks for."""
        own = self.changes.backfills
        if what == "invalidate":
            await self.changes.invalidations.invalidate(self.scope, "shop.clean.0", partition_key="day=2", by="tests")
        elif what == "backfill":
            found, plan = await self.changes.plan_backfill(
                self.scope, "shop.orders.0", start=str(FIRST), end=str(LAST), max_in_flight=3
            )
            await own.request(self.scope, found, plan, by="tests")
        else:
            (one,) = await own.listed(self.scope)
            await (own.pause if what == "pause" else own.resume)(self.scope, one.backfill_id, by="tests")


@asynccontextmanager
async def _few_names_in_an_event() -> AsyncIterator[None]:
    usual = requests.KEYS_BYTES, requests.APPENDED_TOGETHER
    requests.KEYS_BYTES, requests.APPENDED_TOGETHER = 20, 1  # type: ignore[misc]
    try:
        yield
    finally:
        requests.KEYS_BYTES, requests.APPENDED_TOGETHER = usual  # type: ignore[misc]


@asynccontextmanager
async def open_changing(url: str, home: Path, *, works: bool = False) -> AsyncIterator[Changing]:
    """Give an engine with changes; one that works also drives backfills. Few names fit one of their events here."""
    async with _few_names_in_an_event(), open_engine(url, home, works=works) as driven:
        runtime = driven.runtime
        changes = Changes(
            runtime.database, runtime.ledger, runtime.payloads,
            Datasets(runtime.database, runtime.payloads, runtime.history), driven.engine, runtime.ids.mint,
            producer_of(runtime, "tests"),
        )  # fmt: skip
        drain = changes.drain(every_seconds=0.1, patience_seconds=0.0)
        if works:
            drain.start()
        try:
            yield Changing(driven, changes)
        finally:
            await drain.stop()
