"""Retention of datasets whose files lie on a real S3 server: listed below their own prefixes, and deleted by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import obstore
import pytest

from noetl.errors import HistoryNotKept, Unavailable
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.runtime.assembly.retention import carried_out, open_retention
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import TestedPipelines, connected, working
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.s3 import running_s3

from .test_retention_of_data import AT_ONCE, head, named, removed, rows_at, shop

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake in a bucket."""
    with running_s3(tmp_path_factory.mktemp("s3"), "lake") as server:
        options = {
            "endpoint": server.endpoint,
            "region": "us-east-1",
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "allow_http": "true",
            "virtual_hosted_style_request": "false",
        }
        yield Lake("s3://lake/some/where", options, native=False)


@pytest.fixture
async def on_s3(playbooks: Playbooks, task_engine: TaskEngine, lake: Lake) -> AsyncIterator[TestedPipelines]:
    """Pipelines whose files lie there."""
    async with working(connected(task_engine, playbooks.runtime, playbooks.scope, lake, playbooks.home)) as tested:
        yield tested


def stored(lake: Lake) -> set[str]:
    return {one["path"] for page in obstore.list(lake.store()) for one in page}


async def test_what_nothing_needs_goes_from_the_bucket(on_s3: TestedPipelines, lake: Lake) -> None:
    """INV-81, INV-83."""
    obstore.put(lake.store(), "another/organization/file", b"not ours")
    on_s3.give("orders", {"day": "1", "amount": 1})
    await on_s3.deploy(shop())
    past = await head(on_s3)
    on_s3.give("orders", {"day": "1", "amount": 2})
    await on_s3.emit("shop", "orders")
    view = await on_s3.view("sales")
    assert view.generation is not None
    obstore.put(lake.store(), f"{view.generation.storage_location}commit=dead-1-x/part.parquet", b"left over")
    retention = open_retention(on_s3.runtime, on_s3.scope, lake)
    assert removed(await retention.plan(changes=AT_ONCE)) == {"versions": 2, "staging": 1}
    await carried_out(retention, changes=AT_ONCE)
    kept = await named(on_s3, "sales") | await named(on_s3, "shop.orders.0")
    assert stored(lake) == {*kept, "another/organization/file"}
    assert await on_s3.rows("sales") == [{"day": "1", "amount": 2}]
    with pytest.raises(HistoryNotKept):
        await rows_at(on_s3, "sales", past)
    wrong = Lake("s3://lake/some/where", {**lake.options, "endpoint": "http://127.0.0.1:1", "timeout": "1s"})
    with pytest.raises(Unavailable, match="does not list"):
        await open_retention(on_s3.runtime, on_s3.scope, wrong).plan(changes=AT_ONCE)
