"""What is printed for a damaged file mends it: no command is named that refuses it, or does nothing."""

from __future__ import annotations

import asyncio
import re
from threading import Thread
from typing import Any

import asyncpg
import msgspec
import pytest

from noetl.errors import InputError
from noetl.model.dataset import FileEntry
from noetl.pipelines.damage.finder import DamagedFile, DamageFinder
from noetl.pipelines.damage.repair import Repairs
from noetl.pipelines.datasets.dataset_reader import DatasetReader
from noetl.runtime.assembly.changes import changes_of
from noetl.spark.event_lake.definition import DAG as EVENTS
from noetl.spark.event_lake.facts.catalogue import DAG as FACTS
from noetl.spark.lake.integrity.checks import Damage
from noetl.testing.attacks import files as attacks
from noetl.testing.engines.pipelines import TestedPipelines

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

DAG = """\
name: {name}
jobs:
  - {{name: orders, operator: made, runtime: dispatcher}}
  - {{name: log, operator: made, runtime: dispatcher, inputs: [orders], update_strategy: append, unique_key: [amount]}}
publish: [orders, log]
"""
TOLD = DamagedFile(
    dataset="orders",
    dag="shop",
    job="orders",
    dataset_version="12345678",
    partition_key="all",
    versions=(1,),
    current=True,
    serving=True,
    update_strategy="replace",
    source=None,
    task_id="t",
    entry=FileEntry(path="p", bytes=1, rows=1, sha256="s"),
    damage=Damage(path="p", why="missing", expected_bytes=1, expected_sha256="s"),
)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({}, "`noetl datasets repair orders` has it built again"),
        ({"source": "cron"}, "`noetl datasets repair orders` has it built again"),
        ({"update_strategy": "append"}, "appends to what is there.*restore the file from a copy"),
        ({"source": "webhook"}, "webhook source shop.orders cannot be asked.*restore the file from a copy"),
        ({"source": "always_on"}, "always_on source shop.orders cannot be asked.*restore the file from a copy"),
        ({"serving": False, "update_strategy": None}, "restore the file from a copy, or let its version serve"),
        ({"current": False}, "`noetl datasets repair orders` puts equal bytes back"),
        ({"dag": EVENTS, "update_strategy": "append"}, "`noetl lake rebuild` writes it anew"),
        ({"dag": FACTS, "current": False}, "`noetl lake rebuild` writes it anew"),
    ],
)
def test_the_remedy_is_one_that_the_file_has(other: dict[str, Any], told: str) -> None:
    """INV-186."""
    remedy = msgspec.structs.replace(TOLD, **other).remedy()
    assert re.search(told, remedy), remedy
    assert ("noetl datasets repair" in remedy) == ("noetl datasets repair" in told)


def _of(pipelines: TestedPipelines) -> tuple[DamageFinder, Repairs]:
    runtime = pipelines.runtime
    finder = DamageFinder(pipelines.scope, runtime.database, runtime.payloads, pipelines.lake)
    reader = DatasetReader(pipelines.scope, runtime.database, runtime.payloads, runtime.history)

    async def finished(run: int) -> str | None:
        return (await pipelines.finished(run)).error

    changes = changes_of(runtime, pipelines.pipelines)
    return finder, Repairs(pipelines.scope, reader, finder, pipelines.lake, changes, finished)


async def _damaged(pipelines: TestedPipelines, name: str) -> str:
    view = await pipelines.view(name)
    (manifest,) = await pipelines.pipelines.datasets.manifests(pipelines.scope, view.partitions)
    file = pipelines.lake.local(manifest.files[0])
    assert file is not None
    attacks.remove(file)
    return manifest.files[0].path


async def test_what_a_job_appended_is_not_said_to_be_built_again(pipelines: TestedPipelines) -> None:
    """INV-186: how a job writes is looked up in the version that serves."""
    pipelines.made.given["orders"] = pipelines.made.given["log"] = lambda work: [{"amount": 1}]
    await pipelines.deploy(DAG.format(name="shop"))
    paths = {await _damaged(pipelines, name) for name in ("orders", "log")}
    finder, repairs = _of(pipelines)
    found = {one.dataset: one for one in (await finder.find()).damaged}
    assert {one.entry.path for one in found.values()} == paths
    assert "noetl datasets repair orders" in found["orders"].remedy()
    assert "restore the file from a copy" in found["log"].remedy()
    done = await repairs.repair("log", by="tests")
    assert done.partitions == ()
    assert "appends to what is there" in done.errors[0]
    assert (await repairs.repair("orders", by="tests")).after.clean


@pytest.mark.no_parity
async def test_what_retention_lets_go_of_meanwhile_is_not_missing(pipelines: TestedPipelines) -> None:
    """INV-186: a file that was removed while others were hashed is looked up again before it is told."""
    pipelines.made.given["orders"] = pipelines.made.given["log"] = lambda work: [{"amount": 1}]
    await pipelines.deploy(DAG.format(name="shop"))
    view = await pipelines.view("orders")
    (manifest,) = await pipelines.pipelines.datasets.manifests(pipelines.scope, view.partitions)
    file, scope = pipelines.lake.local(manifest.files[0]), pipelines.scope
    assert file is not None

    async def trim() -> None:
        connection = await asyncpg.connect(pipelines.runtime.database.url)
        try:
            own = "SELECT set_config('noetl.tenant', $1, false), set_config('noetl.organization', $2, false)"
            await connection.execute(own, scope.tenant_id, scope.organization_id)
            done = await connection.execute(
                "INSERT INTO noetl.trimmed_version SELECT tenant_id, organization_id, dataset_version, partition_key,"
                " version, dataset_uuid, 'tests', now() FROM noetl.partition_version WHERE tenant_id = $1 AND"
                " organization_id = $2 AND dataset_version::text = $3",
                scope.tenant_id, scope.organization_id, manifest.dataset_version,
            )  # fmt: skip
            assert done == "INSERT 0 1"
        finally:
            await connection.close()

    def retained(size: int) -> None:
        """Remove the file of the second dataset while the first one's is told, as another process would."""
        if file.exists():
            attacks.remove(file)
            thread = Thread(target=lambda: asyncio.run(trim()))
            thread.start()
            thread.join()

    finder, _ = _of(pipelines)
    report = await finder.find(progress=retained)
    assert not file.exists()
    assert report.clean, report


@pytest.mark.parametrize("name", [EVENTS, FACTS])
async def test_a_repair_of_what_the_ledger_gives_names_the_right_command(pipelines: TestedPipelines, name: str) -> None:
    """INV-186: their jobs do nothing, and a repair would say that it built them."""
    pipelines.made.given["orders"] = pipelines.made.given["log"] = lambda work: [{"amount": 1}]
    await pipelines.deploy(DAG.format(name=name))
    await _damaged(pipelines, "orders")
    finder, repairs = _of(pipelines)
    assert "noetl lake rebuild" in (await finder.find()).damaged[0].remedy()
    with pytest.raises(InputError) as refused:
        await repairs.repair("orders", by="tests")
    assert "noetl lake rebuild" in str(refused.value.hint)
