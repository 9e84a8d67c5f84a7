"""A server of the API with pipelines, on a database of the test's own; workers' answers are made up by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.api.serving import HOME, Server, make_engine, make_services, running
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.api.services import Services
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.pipelines import Pipelines
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tasks.local import LocalTasks
from noetl.pipelines.tasks.port import Tasks
from noetl.pipelines.tasks.remote import RemoteTasks
from noetl.services.credentials.tokens import ROLES
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.parity import Projections

Parts = tuple[Services, Projections]


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[TaskTestbed]:
    """The engine of tasks behind the server."""
    testbed = TaskTestbed(database, ledger, tmp_path / "dag", payloads=MemoryPayloadStore())
    yield testbed
    await testbed.engine.close()


@pytest.fixture
def lake(tmp_path: Path) -> LakeFiles:
    """Where the files of datasets are."""
    (tmp_path / "lake").mkdir()
    return LakeFiles(Lake(str(tmp_path / "lake")))


@pytest.fixture
async def parts(testbed: TaskTestbed, lake: LakeFiles, tmp_path: Path) -> AsyncIterator[Parts]:
    """All that a server with pipelines stands on."""
    database, ledger, payloads = testbed.database, testbed.ledger, testbed.payloads
    readers = Database(database.url, as_roles=True)
    engine = make_engine(database, ledger, payloads)
    services, projections = make_services(database, readers, ledger, payloads, engine, tmp_path / "keys", auth=False)
    datasets = Datasets(readers, payloads, services.history)
    pipelines = Pipelines(HOME, testbed.dags, datasets, testbed.engine)
    yield replace(services, pipelines=pipelines, lake=lake), projections
    await engine.close()
    await readers.close()


@pytest.fixture
async def server(parts: Parts) -> AsyncIterator[Server]:
    """A server on the loopback that asks for no tokens."""
    services, projections = parts
    async with running(services, projections, auth=False) as server:
        yield server


@pytest.fixture
async def guarded(parts: Parts) -> AsyncIterator[Server]:
    """A server that asks for tokens."""
    services, projections = parts
    async with running(replace(services, auth_required=True), projections, auth=True) as server:
        yield server


@pytest.fixture
async def bearers(guarded: Server) -> dict[str, dict[str, str]]:
    """For each role, the headers of a caller that has it."""
    found = {}
    for role in ROLES:
        token, _ = await guarded.services.tokens.create(HOME, f"a {role}", role)
        found[role] = {"Authorization": f"Bearer {token.reveal()}"}
    return found


@pytest.fixture(params=["local", "remote"])
async def tasks(request: pytest.FixtureRequest, testbed: TaskTestbed, server: Server) -> AsyncIterator[Tasks]:
    """The tasks under test: of the engine itself, and over HTTP."""
    if request.param == "local":
        local: LocalTasks = testbed.tasks
        yield local
        return
    remote = RemoteTasks(server.url, patience_seconds=5.0)
    yield remote
    await remote.close()
