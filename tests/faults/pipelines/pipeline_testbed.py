"""What the crash tests of pipelines stand on: processes that do the work and die, and a test that waits until they have."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
from tests.faults.killable import Killable
from tests.faults.pipelines.process import Given

from noetl.pipelines.tasks.engine import TaskEngine
from noetl.spark.session.options import SparkOptions
from noetl.testing.engines.pipelines import WAIT_SECONDS, TestedPipelines, working
from noetl.testing.engines.short_leases import until
from noetl.testing.servers.spark import SharedDrivers

PROCESS = Path(__file__).with_name("process.py")
MARK = "NOETL_TEST_MARK"


class Process(Killable):
    """Pipelines in a process of its own."""

    def __init__(self, given: Given, log: Path, fault: str) -> None:
        self._mark = uuid.uuid4().hex
        root = str(Path(__file__).parents[3])
        environ = {"NOETL_FAULT": fault, "PYTHONPATH": root, MARK: self._mark}
        arguments = (str(PROCESS), msgspec.json.encode(given).decode())
        super().__init__(*arguments, log=log, environ=environ, patience=WAIT_SECONDS)

    async def said(self, line: str) -> None:
        """Wait until it says so."""
        assert self._popen.stdout is not None
        async with asyncio.timeout(self._patience):
            while (found := await asyncio.to_thread(self._popen.stdout.readline)) != f"{line}\n":
                assert found, self._log.read_text()

    async def killed(self) -> None:
        """Wait until it has killed itself at its fault point, and until nothing that it started is left."""
        await super().killed()
        await until(self._has_no_children, "an end of all that it started")

    async def _has_no_children(self) -> bool:
        return not [one for one in psutil.process_iter() if _is_marked(one, self._mark)]


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except psutil.Error:
        return False


class PipelineTestbed:
    """A test's pipelines, for which nothing works before the test says so, and its processes."""

    def __init__(self, tested: TestedPipelines, engine: TaskEngine, owner_url: str, lake: str) -> None:
        self.pipelines = tested
        self.engine = engine
        self._url = owner_url
        self._lake = lake
        self._processes: list[Process] = []

    def process(
        self,
        fault: str,
        *,
        spark: SparkOptions | None = None,
        emits: tuple[str, str, str] | None = None,
        keeps: bool = False,
    ) -> Process:
        """Start a process that works."""
        home = self.pipelines.runtime.settings.runtime.home
        given = Given(url=self._url, home=str(home), lake=self._lake, spark=spark, emits=emits, keeps=keeps)
        process = Process(given, home / "process.log", fault)
        self._processes.append(process)
        return process

    @asynccontextmanager
    async def recovering(self, spark: SharedDrivers | None = None) -> AsyncIterator[TestedPipelines]:
        """Let this process take over what others left."""
        self.engine.start()
        async with working(self.pipelines, spark):
            yield self.pipelines

    async def assert_whole(self) -> None:
        """Nothing is open, no partition is half visible, and every file that is seen belongs to the attempt that made it."""
        left = await self.pipelines.fetch(
            "SELECT task_id::text FROM noetl.task WHERE available_at IS NOT NULL"
            " UNION ALL SELECT outbox_id::text FROM noetl.outbox WHERE status <> 'Done'"
        )
        assert not left
        ended = {
            task["task_id"]: task["attempt"]
            for task in await self.pipelines.fetch("SELECT task_id::text, attempt FROM noetl.task")
        }
        for dataset in await self.pipelines.pipelines.datasets.registered(self.pipelines.scope):
            view = await self.pipelines.view(dataset.dataset_uuid)
            manifests = await self.pipelines.pipelines.datasets.manifests(self.pipelines.scope, view.partitions)
            assert len(await self.pipelines.rows(view)) == sum(part.rows for part in view.partitions)
            for entry in (entry for manifest in manifests for entry in manifest.files):
                commit = entry.path.partition("/commit=")[2]
                assert any(commit.startswith(f"{task}-{attempt}") for task, attempt in ended.items()), entry.path

    def close(self) -> None:
        """Leave no process behind."""
        for process in self._processes:
            process.close()
