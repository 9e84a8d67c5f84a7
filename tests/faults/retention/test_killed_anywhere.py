"""Retention killed at any point: nothing that something needs is gone, and the next run finishes what it left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.model.mark import Mark
from noetl.runtime.assembly.retention import open_retention
from noetl.services.retention.plan import KINDS
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

from .process import AT_ONCE

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
POINTS = (
    "retention.before_event",
    "retention.after_event",
    "retention.after_files",
    "retention.after_mark",
    "retention.after_event",
    "retention.after_files",
    "retention.after_event",
    "retention.after_rows",
)
"""Each run finishes what the one before left, so that the same point is met again in later steps: data, files, rows."""


def shop(factor: int = 1) -> str:
    return f"""
    name: shop
    jobs:
      - {{name: orders, operator: made, runtime: dispatcher, partition_by: [day]}}
      - name: clean
        operator: made
        runtime: dispatcher
        partition_by: [day]
        inputs: [orders]
        config: {{query: "SELECT day, amount * {factor} AS amount FROM orders"}}
    publish: {{sales: clean}}
    """


class RetentionTestbed:
    """A pipeline with a past, a pin in it, and what nothing needs: versions, a generation, files, tasks, outbox rows."""

    def __init__(self, pipelines: TestedPipelines, owner_url: str) -> None:
        self.pipelines, self.url = pipelines, owner_url
        self.home = pipelines.runtime.settings.runtime.home
        self.retention = open_retention(pipelines.runtime)
        self.pinned: Mark | None = None

    async def prepare(self) -> None:
        """Let it happen."""
        pipelines = self.pipelines
        for amount in (1, 2, 3):
            pipelines.give("orders", {"day": "1", "amount": amount}, {"day": "2", "amount": 7})
            await (pipelines.deploy(shop()) if amount == 1 else pipelines.emit("shop", "orders"))
            if amount == 2:
                self.pinned = await pipelines.runtime.history.head()
        assert self.pinned is not None
        orders = await pipelines.pipelines.datasets.find(pipelines.scope, "shop.orders.0")
        await self.retention.pins.pin_dataset(pipelines.scope, orders.dataset_uuid, self.pinned, by="tests")
        for factor in (2, 3):
            await pipelines.deploy(shop(factor))
        view = await pipelines.view("sales")
        assert view.generation is not None
        stray = self.home / "lake" / view.generation.storage_location / "day=1" / "commit=dead-1-x" / "part.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"left over")

        async def delivered() -> bool:
            return not await pipelines.fetch("SELECT FROM noetl.outbox WHERE status <> 'Done'")

        await until(delivered, "an outbox that is done")

    async def run(self, fault: str = "") -> int:
        """Run retention in a process of its own and return how it ended."""
        log = self.home / "retention.log"
        with log.open("ab") as told:
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(PROCESS), self.url, str(self.home),
                env={**os.environ, "NOETL_FAULT": fault}, stdout=told, stderr=told,
            )  # fmt: skip
        code = await asyncio.wait_for(process.wait(), 60)
        assert code in (0, -signal.SIGKILL), log.read_text()
        return code

    async def check_needed(self) -> None:
        """Readers have what they had, and the pin is kept to the last file."""
        pipelines, datasets = self.pipelines, self.pipelines.pipelines.datasets
        assert await pipelines.rows("sales") == [{"day": "1", "amount": 9}, {"day": "2", "amount": 21}]
        view = await datasets.view(pipelines.scope, "shop.orders.0", self.pinned)
        assert await pipelines.rows(view) == [{"day": "1", "amount": 2}, {"day": "2", "amount": 7}]
        assert await pipeline_differences(pipelines.runtime.database, pipelines.scope) == []

    async def kept_files(self) -> set[str]:
        """Return the files that current pointers, the rollback target and the pin name."""
        datasets, scope = self.pipelines.pipelines.datasets, self.pipelines.scope
        views: list[Any] = [await datasets.view(scope, "shop.orders.0", self.pinned)]
        for name in ("sales", "shop.orders.0"):
            dataset = await datasets.find(scope, name)
            gone = await datasets.gone(scope, dataset.dataset_uuid)
            for one in await datasets.generations(scope, dataset.dataset_uuid):
                if one.dataset_version not in gone:
                    views.append(await datasets.view_of(scope, one.dataset_version))
        manifests = [await datasets.manifests(scope, view.partitions) for view in views]
        return {entry.path for some in manifests for one in some for entry in one.files}

    def lake_files(self) -> set[str]:
        lake = self.home / "lake"
        return {path.relative_to(lake).as_posix() for path in lake.rglob("*") if path.is_file()}


async def test_what_is_needed_survives_every_death_and_the_next_run_finishes(
    pipelines: TestedPipelines, owner_url: str
) -> None:
    """INV-81, INV-83."""
    testbed = RetentionTestbed(pipelines, owner_url)
    await testbed.prepare()
    for place, point in enumerate(POINTS):
        assert await testbed.run(f"{point}=kill") == -signal.SIGKILL, (place, point)
        await testbed.check_needed()
    # Tasks of a generation go with the run after the one that purges it.
    for _ in range(2):
        assert await testbed.run() == 0
    await testbed.check_needed()
    assert testbed.lake_files() == await testbed.kept_files()
    assert await pipelines.fetch("SELECT FROM noetl.outbox WHERE status = 'Done'") == []
    plan = await testbed.retention.plan([kind for kind in KINDS if kind != "archives"], AT_ONCE)
    assert not plan.removes, plan.lines
    assert not plan.unfinished
