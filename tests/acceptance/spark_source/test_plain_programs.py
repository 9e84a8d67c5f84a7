"""`format("noetl")` in PySpark programs that register nothing: on this machine alone, and on a cluster of two workers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.codec import ARROW_STREAM, encode_table
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.model.canonical import exact_json
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.session.java import find_java
from noetl.spark.session.options import SparkOptions
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("program.py")
PAGE = Path(__file__).parents[3] / "docs" / "spark-source.md"
CARE, BOOKS = Scope("acme", "care"), Scope("zeta", "books")
MINT = SnowflakeGenerator(33, lambda: time.time_ns() // 1_000_000).mint
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}


def row_of(event: Event) -> list[Any]:
    """Return an event as the program prints it."""
    meta = exact_json(event.meta).decode() if event.meta else None
    micros = round(event.event_time.timestamp() * 1_000_000)
    return [event.shard, event.position, event.event_id, event.execution_id, event.event_type, meta, micros]


async def told(ledger: PostgresLedger, owner_url: str, directory: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    """Write executions of two tenants; return what a program is told, and the rows that one of them has."""
    runs = [await framed_run(ledger, Drafts(scope, MINT)) for scope in (CARE, BOOKS, CARE, BOOKS, CARE)]
    await committed(ledger, runs[0].execution_id, directory / "payloads")
    own = [row_of(event) for event in await everything(ledger, CARE)]
    (directory / "log").mkdir()
    settings = SETTINGS | {"spark.eventLog.dir": str(directory / "log"), "spark.local.dir": str(directory / "local")}
    given = {
        "options": {"url": owner_url, "as_roles": "true", "tenant": "acme", "organization": "care"},
        "directory": str(directory),
        "half": Mark([position // 2 for position in (await ledger.head()).positions]).token(),
        "foreign": str(runs[1].execution_id),
        "first": str(runs[0].execution_id),
        "settings": settings,
        "payloads_url": f"file://{directory / 'payloads'}",
        "page": str(PAGE),
    }
    return given, own


async def committed(ledger: PostgresLedger, run: int, directory: Path) -> None:
    """Write frames whose results are tables in a payload store."""
    store, drafts = ObjectPayloadStore(LocalBucket(directory, tier="disk")), Drafts(CARE, MINT)
    for first in (0, 3):
        days = [date(2026, 1, day + 1) for day in range(first, first + 3)]
        encoded = encode_table(pa.table({"day": days, "amount": [Decimal("1.50")] * 3}))
        ref = await store.store(CARE, encoded.data, ARROW_STREAM, rows=3)
        ref = msgspec.structs.replace(ref, schema_digest=encoded.schema_digest)
        stage, frame = MINT(), MINT()
        for kind, given in (("frame.dispatched", {}), ("frame.committed", {"payload_ref": ref})):
            draft = drafts.frame(run, stage, frame, kind, **given)
            await ledger.append(draft.stream, [draft])


async def ran(given: dict[str, Any], options: SparkOptions, **more: str) -> dict[str, Any]:
    """Run the program and return what it found."""
    java = find_java(Path(options.cache))
    # As in an environment that is activated: its Python is the first on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    variables |= {"PATH": path, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"} | more
    variables |= {"NOETL_DATABASE_URL": given["options"]["url"], "PAYLOADS_URL": given["payloads_url"]}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(PROGRAM)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=variables,
        cwd=given["directory"],
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["said"] = done.stderr
    return found


async def test_a_program_reads_the_ledger_by_name_and_gives_no_secret_away(
    ledger: PostgresLedger, owner_url: str, spark_options: SparkOptions, tmp_path: Path
) -> None:
    """INV-84, INV-85, INV-86."""
    given, own = await told(ledger, owner_url, tmp_path)
    nowhere = "postgresql://noetl:hunter2@127.0.0.1:1/noetl"
    found = await ran(given | {"master": "local[2]", "all": True, "nowhere": nowhere}, spark_options)
    assert found["batch"] == own
    assert found["stream"] == own

    chosen = [row for row in own if row[4] == "frame.committed" and row[1] > 3]
    assert found["twice"] == own, "filters of one use of a frame were asked of another use of it"
    assert found["chosen"] == chosen
    assert found["scanned"] == [len(chosen)], "PostgreSQL was not asked for fewer rows"
    assert found["few"] == sorted([row[2], row[5]] for row in own)
    assert found["foreign"] == 0
    forgotten, misspelt, columns, unreachable = found["errors"]
    assert "tenant and organization: missing" in forgotten
    assert "excution: no such option" in misspelt
    assert "events have no columns meta int" in columns
    assert "PostgreSQL does not answer" in unreachable
    failures, kinds, _, results = found["printed"]
    assert f"|{given['first']}|    1|" in failures
    assert "|frame.committed" in kinds
    assert "day: date" in results
    assert "amount: decimal(3,2)" in results
    assert "6 rows" in results
    everywhere = "\n".join([found["plan"], found["said"], *found["errors"], *found["files"]])
    assert len("".join(found["files"])) > 1000
    for secret in (owner_url, "hunter2", nowhere):
        assert secret not in everywhere


@pytest.mark.slow
async def test_a_program_reads_the_ledger_on_a_cluster_of_two_workers(
    ledger: PostgresLedger, owner_url: str, spark_options: SparkOptions, spark_master: str, tmp_path: Path
) -> None:
    given, own = await told(ledger, owner_url, tmp_path)
    given["settings"] |= {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    given["options"]["partition_events"] = "5"
    # Executors are to run a Python that has NoETL, which on a cluster is not whichever comes first on the path.
    found = await ran(given | {"master": spark_master, "all": False}, spark_options, PYSPARK_PYTHON=sys.executable)
    assert found["batch"] == own
    assert found["stream"] == own
    log = "".join(found["files"])
    assert {f'"Executor ID":"{number}"' for number in range(2) if f'"Executor ID":"{number}"' in log} == {
        '"Executor ID":"0"',
        '"Executor ID":"1"',
    }
    assert owner_url not in log
