"""What a reader sees of a dataset: fixed when it looks, and as it was at any mark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests.integration.pipelines.catalog.shop import IDS, SCOPE, Shop

from noetl.errors import NotFound
from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.catalog.datasets.rows import DatasetView
from noetl.testing.engines.parity import connect

OTHER = "SELECT id + 1 AS id, region FROM raw"


@pytest.fixture
def shop(database: Database, ledger: PostgresLedger, tmp_path: Path) -> Shop:
    return Shop(database, ledger, MemoryPayloadStore(), tmp_path)


def seen(view: DatasetView) -> list[tuple[str, int]]:
    return [(part.partition_key, part.version) for part in view.partitions]


async def test_a_dataset_is_found_by_name_by_its_maker_and_by_id(shop: Shop) -> None:
    deployed = await shop.serve()
    clean = deployed.plan.datasets[1].dataset_uuid
    for name in ("orders", clean):
        assert (await shop.datasets.find(SCOPE, name)).dataset_uuid == clean
    assert (await shop.datasets.find(SCOPE, "shop.raw.0")).job == "raw"
    with pytest.raises(NotFound, match="no dataset order") as refused:
        await shop.datasets.find(SCOPE, "order")
    assert refused.value.hint == "did you mean orders?"


async def test_before_a_version_serves_there_is_nothing_to_see(shop: Shop) -> None:
    deployed = await shop.deploy()
    await shop.commit(deployed, "clean")
    view = await shop.datasets.view(SCOPE, "orders")
    assert (view.generation, view.partitions) == (None, ())
    candidate = await shop.datasets.view_of(SCOPE, deployed.plan.datasets[1].new)
    assert seen(candidate) == [("all", 1)]
    with pytest.raises(NotFound, match="no generation nope"):
        await shop.datasets.view_of(SCOPE, "nope")


async def test_a_reader_sees_the_current_partitions_and_what_they_consist_of(shop: Shop) -> None:
    deployed = await shop.serve()
    await shop.commit(deployed, "raw", "region=eu", rows=3)
    await shop.commit(deployed, "raw", "region=us", rows=4)
    await shop.commit(deployed, "raw", "region=eu", version=2, rows=5)
    await shop.commit(deployed, "raw", "region=uk")
    await shop.drop(deployed, "raw", "region=uk", 2)
    view = await shop.datasets.view(SCOPE, "shop.raw.0")
    assert seen(view) == [("region=eu", 2), ("region=us", 1)]
    assert view.rows == 9
    assert view.generation is not None
    assert view.generation.partition_by == ("region",)
    manifests = await shop.datasets.manifests(SCOPE, view.partitions)
    assert [(one.partition_key, one.row_count) for one in manifests] == [("region=eu", 5), ("region=us", 4)]


async def test_a_mark_shows_the_generation_and_the_partitions_of_its_time(shop: Shop) -> None:
    """INV-56."""
    marks, views = [await shop.ledger.head()], []
    first = await shop.serve()
    for step in (
        lambda: shop.commit(first, "clean", digest="01"),
        lambda: shop.commit(first, "clean", version=2, digest="02"),
        lambda: shop.drop(first, "clean", "all", 3),
        lambda: shop.commit(first, "clean", version=4, digest="01"),
        lambda: shop.serve(clean=OTHER),
        lambda: shop.dags.rollback(SCOPE, "shop", by="tests"),
    ):
        await step()
        marks.append(await shop.ledger.head())
        views.append(await shop.datasets.view(SCOPE, "orders"))
    assert [seen(view) for view in views] == [[("all", 1)], [("all", 2)], [], [("all", 4)], [], [("all", 4)]]
    for mark, view in zip(marks[1:], views, strict=True):
        then = await shop.datasets.view(SCOPE, "orders", mark)
        assert then == view
        assert then.checksum == view.checksum
    assert (await shop.datasets.view(SCOPE, "orders", marks[0])).generation is None
    assert await shop.datasets.current_generation(SCOPE, views[0].dataset, marks[5]) == views[4].generation


async def test_a_mark_cuts_each_shard_by_itself(shop: Shop) -> None:
    deployed = await shop.serve()
    await shop.commit(deployed, "raw", "region=eu")
    await shop.commit(deployed, "raw", "region=us")
    head = await shop.ledger.head()
    generation = deployed.plan.datasets[0].new
    found = {
        shard: {
            part.partition_key
            for part in await shop.datasets.partitions(SCOPE, generation, head.with_position(shard, 0))
        }
        for shard in range(SHARD_COUNT)
    }
    assert {"region=eu", "region=us"} in found.values()
    assert any("region=eu" not in parts for parts in found.values())
    assert await shop.datasets.partitions(SCOPE, generation, Mark.zero()) == []


async def test_a_name_means_at_a_mark_what_it_meant_then(shop: Shop) -> None:
    await shop.serve()
    before = await shop.ledger.head()
    await shop.serve(shop.bundle(publish="orders: raw\n  cleaned"))
    assert (await shop.datasets.find(SCOPE, "orders")).job == "raw"
    assert (await shop.datasets.find(SCOPE, "orders", before)).job == "clean"


async def test_the_checksum_tells_data_apart_and_nothing_else(shop: Shop) -> None:
    """INV-56."""
    deployed = await shop.serve()
    await shop.commit(deployed, "raw", "region=eu", digest="01")
    await shop.commit(deployed, "raw", "region=us", digest="02")
    view = await shop.datasets.view(SCOPE, "shop.raw.0")
    turned = msgspec.structs.replace(view, partitions=view.partitions[::-1])
    assert turned.checksum == view.checksum
    fewer = msgspec.structs.replace(view, partitions=view.partitions[:1])
    other = msgspec.structs.replace(
        view, partitions=(view.partitions[0], msgspec.structs.replace(view.partitions[1], content_digest="x"))
    )
    assert len({view.checksum, fewer.checksum, other.checksum}) == 3


async def test_the_columns_of_a_generation_are_those_of_the_mark(shop: Shop) -> None:
    deployed = await shop.serve()
    generation = deployed.plan.datasets[1].new
    assert await shop.datasets.schema(SCOPE, generation) == ()
    await shop.set_schema(deployed, "clean", 1, "id")
    before = await shop.ledger.head()
    await shop.set_schema(deployed, "clean", 2, "id", "region")
    assert [one.name for one in await shop.datasets.schema(SCOPE, generation)] == ["id", "region"]
    assert [one.name for one in await shop.datasets.schema(SCOPE, generation, before)] == ["id"]
    assert await shop.datasets.schema(SCOPE, generation, Mark.zero()) == ()


async def test_every_build_of_a_dataset_is_listed(shop: Shop) -> None:
    first, second = await shop.serve(), await shop.deploy(clean=OTHER)
    found = await shop.datasets.generations(SCOPE, first.plan.datasets[1].dataset_uuid)
    assert [one.dataset_version for one in found] == [second.plan.datasets[1].new, first.plan.datasets[1].new]
    assert found[0].storage_location.endswith(f"gen={found[0].dataset_version}/")


async def test_datasets_of_another_organization_are_not_seen(
    database: Database, ledger: PostgresLedger, tmp_path: Path
) -> None:
    payloads = MemoryPayloadStore()
    ours = Shop(database, ledger, payloads, tmp_path)
    theirs = Shop(database, ledger, payloads, tmp_path, Scope("acme", "support"))
    deployed = await ours.serve()
    await ours.commit(deployed, "clean")
    assert await theirs.datasets.registered(theirs.scope) == []
    assert await theirs.datasets.partitions(theirs.scope, deployed.plan.datasets[1].new) == []
    for name in ("orders", deployed.plan.datasets[1].dataset_uuid):
        with pytest.raises(NotFound):
            await theirs.datasets.view(theirs.scope, name, await ledger.head())


async def test_a_mark_shows_the_same_after_its_events_were_archived(database: Database, tmp_path: Path) -> None:
    """INV-56."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    found = connect(database, ledger)
    now = datetime.now(UTC)
    old = SnowflakeGenerator(8, partial(next, count(int((now - timedelta(days=365)).timestamp() * 1000)))).mint
    shop = Shop(database, ledger, MemoryPayloadStore(), tmp_path, mint=old)
    shop.datasets = Datasets(database, shop.payloads, found.history)
    deployed = await shop.serve()
    await shop.commit(deployed, "clean", digest="01")
    await shop.set_schema(deployed, "clean", 1, "id")
    mark, view = await ledger.head(), await shop.datasets.view(SCOPE, "orders")
    await shop.commit(deployed, "clean", version=2, digest="02")
    ended = shop.drafts.execution(deployed.execution_id, "execution.completed")
    await ledger.transact(Transition((Append(ended.stream, [ended]),)))
    await found.project()
    report = await retain(database, ledger, found.payloads, mint=IDS.mint, keep_months=1, now=now)
    assert [outcome.action for outcome in report.partitions] == ["dropped"]
    assert await shop.datasets.view(SCOPE, "orders", mark) == view
    assert await shop.datasets.schema(SCOPE, deployed.plan.datasets[1].new, mark) != ()
    assert (await shop.dags.rollback(SCOPE, "shop", deployed.dag_version_id, by="tests")).changed is False
    await ledger.close()
