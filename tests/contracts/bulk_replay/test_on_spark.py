"""A bulk replay on real Spark, in this machine's own and on a cluster with two workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.contracts.bulk_replay.replay_testbed import (
    IDS,
    NEIGHBOUR,
    OWN,
    POSTED,
    OnSpark,
    ReplayTestbed,
    open_testbed,
    write_history,
)

from noetl.errors import FoldFailed
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.replay.as_of import AsOf
from noetl.spark.session.options import SparkOptions
from noetl.testing.samples.drafts import Drafts
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.service, pytest.mark.no_parity, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster_drivers(spark_options: SparkOptions, spark_master: str) -> Iterator[SharedDrivers]:
    """Drivers that are clients of a standalone cluster with two workers, which do not have the tests' modules."""
    conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    drivers = SharedDrivers(msgspec.structs.replace(spark_options, master=spark_master, conf=spark_options.conf | conf))
    yield drivers
    drivers.close()


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, tmp_path: Path) -> ReplayTestbed:
    testbed = open_testbed(database, ledger, tmp_path)
    await write_history(ledger)
    drafts, run = Drafts(OWN, IDS.mint), IDS.mint()
    large = drafts.frame(run, IDS.mint(), IDS.mint(), context={"cursor": "place " * 12_000})
    for draft in (drafts.execution(run), await externalize(testbed.found.payloads, large)):
        await ledger.append(draft.stream, [draft])
    await testbed.found.project()
    return testbed


@pytest.mark.parametrize(
    "drivers",
    [
        pytest.param("spark_drivers", marks=[pytest.mark.slow, pytest.mark.xdist_group("spark_drivers")]),
        pytest.param("cluster_drivers", marks=[pytest.mark.slow, pytest.mark.xdist_group("spark_cluster")]),
    ],
)
async def test_spark_gives_what_a_single_process_gives(
    testbed: ReplayTestbed, drivers: str, request: pytest.FixtureRequest
) -> None:
    """INV-99, INV-100, INV-101, INV-153."""
    reached: list[tuple[int, int]] = []
    shared: SharedDrivers = request.getfixturevalue(drivers)
    replay, verifier = testbed.bulk(OnSpark(shared), reached=lambda done, total: reached.append((done, total)))
    found = testbed.found
    for scope in (OWN, NEIGHBOUR):
        known = await found.replay.state(scope, projection="all")
        assert await replay.state(scope, projection="all") == known
        cursors = [row["row"]["cursor"] for row in known.rows["frame"]]
        assert ("place " * 12_000 in cursors) == (scope == OWN)
    events = [event async for event in found.history.read_shard(OWN.stream("invoice/1").shard, scope=OWN)]
    point = AsOf(time=events[len(events) // 2].ingest_time)
    known = await found.replay.state(OWN, as_of=point, projection="all")
    assert await replay.state(OWN, as_of=point, projection="all") == known
    report = await verifier.verify(OWN)
    assert report == await found.verifier.verify(OWN)
    assert report.clean
    head = sum((await found.ledger.head()).positions)
    assert reached
    assert all(done <= total == head for done, total in reached)

    wrong = Drafts(OWN, IDS.mint).business("invoice/4", IDS.mint(), POSTED, schema_version=2, meta={"cents": "many"})
    await found.ledger.append(wrong.stream, [wrong])
    with pytest.raises(FoldFailed, match=f"cannot take event {wrong.event_id}"):
        await replay.state(OWN, projection="all")
