"""A lake on an object store is asked as one on a disk is: rows come by ranges, and DuckDB itself reaches no network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.model.dataset import Field
from noetl.services.query.duck.pool import Duck
from noetl.services.query.duck.protocol import Relation
from noetl.services.query.errors import QueryRefused
from noetl.services.query.options import DuckOptions
from noetl.spark.lake.storage import Lake
from noetl.testing.servers.s3 import running_s3

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake of two files on a server of the test's own."""
    with running_s3(tmp_path_factory.mktemp("s3"), "lake") as server:
        options = {
            "endpoint": server.endpoint,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "region": "us-east-1",
            "allow_http": "true",
        }
        found = Lake(f"s3://{server.bucket}/data", options)
        for name, first in (("a", 0), ("b", 1000)):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"n": list(range(first, first + 1000)), "s": ["x" * 50] * 1000}), sink)
            obstore.put(found.store(), f"{name}.parquet", sink.getvalue().to_pybytes())
        yield found


@pytest.fixture
async def duck(lake: Lake, tmp_path: Path) -> AsyncIterator[Duck]:
    """The engine over that lake."""
    engine = Duck(DuckOptions(home=str(tmp_path), lake_root=lake.root, lake_options=lake.options, memory="256MB"))
    yield engine
    await engine.close()


async def test_files_of_an_object_store_are_asked(duck: Duck) -> None:
    columns = (Field("n", "bigint"), Field("s", "string"), Field("later", "double"))
    both = Relation(name="__noetl_0", columns=columns, paths=("a.parquet", "b.parquet"), uniform=True)
    sql = 'SELECT count(*) AS many, max(n) AS last, count(later) AS none FROM "__noetl_0" WHERE n >= 500'
    assert (await duck.answer([both], sql, 60)).to_pylist() == [{"many": 1500, "last": 1999, "none": 0}]


async def test_an_address_of_the_store_is_no_table(duck: Duck) -> None:
    with pytest.raises(QueryRefused, match="reads from something else"):
        await duck.answer([], "SELECT * FROM 's3://lake/data/a.parquet'", 60)
