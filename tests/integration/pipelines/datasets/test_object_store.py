"""Datasets whose files lie on a real S3 server are read, copied and compared like those of a directory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import PermissionDeniedError
from tests.unit.pipelines.works import landed, rows_of, target, work

from noetl.errors import Damaged, Unavailable
from noetl.pipelines.datasets.dataset_reader import PartitionFile
from noetl.pipelines.datasets.export import export, local_copies
from noetl.pipelines.datasets.first_rows import first_rows, wanted_values
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tables.partitions import TableWriter
from noetl.spark.lake.integrity.checks import UNBOUNDED, Checks
from noetl.spark.lake.integrity.read_errors import reading
from noetl.spark.lake.storage import Lake
from noetl.testing.servers.s3 import running_s3

pytestmark = pytest.mark.service

ROWS = pa.table({"id": list(range(1000)), "x": [[n] for n in range(1000)]})


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_s3(tmp_path_factory.mktemp("s3"), "lake") as server:
        yield {
            "endpoint": server.endpoint,
            "region": "us-east-1",
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "allow_http": "true",
            "virtual_hosted_style_request": "false",
        }


async def test_files_of_an_object_store_are_read_and_copied(options: dict[str, str], tmp_path: Path) -> None:
    files = LakeFiles(Lake("s3://lake/some/where", options, native=False))
    writer, on = TableWriter(files), target(update_strategy="append", unique_key=("id",))
    (write,) = (await writer.write(work(on), {0: ROWS})).writes
    parts = [PartitionFile(write.partition_key, entry) for entry in write.files]
    assert files.address(parts[0].entry) == f"s3://lake/some/where/{parts[0].entry.path}"
    wanted = wanted_values(["id=777"], ROWS.schema)
    found = await asyncio.to_thread(first_rows, files, parts, ROWS.schema, wanted, 5)
    assert found.to_pylist() == [{"id": 777, "x": [777]}]
    (copied,) = await asyncio.to_thread(export, files, parts, tmp_path / "out", {})
    assert pq.read_table(copied).equals(ROWS)
    (fetched,) = await asyncio.to_thread(local_copies, files, parts, tmp_path / "scratch")
    assert fetched.parent == tmp_path / "scratch"
    (other,) = (await writer.write(work(on), {0: pa.table({"id": [5, 1000], "x": [[5], [1000]]})})).writes
    assert await rows_of(files, await writer.unique_again(work(on), other, landed(write))) == [
        {"id": 1000, "x": [1000]}
    ]


async def test_an_object_that_is_gone_is_an_error_of_ours(options: dict[str, str]) -> None:
    files = LakeFiles(Lake("s3://lake/some/where", options, native=False))
    (write,) = (await TableWriter(files).write(work(target()), {0: ROWS})).writes
    elsewhere = LakeFiles(Lake("s3://lake/nowhere", options, native=False))
    parts = [PartitionFile(write.partition_key, entry) for entry in write.files]
    assert parts[0].entry.stamp.startswith("etag:")
    other = msgspec.structs.replace(parts[0].entry, stamp="etag:another", sha256="0" * 64)
    files.checks.unchanged([msgspec.structs.replace(parts[0].entry, stamp="etag:another")])
    with pytest.raises(Damaged, match="its SHA-256 is"):
        files.checks.unchanged([other])
    with pytest.raises(Damaged, match="is not in the lake any more"):
        await asyncio.to_thread(first_rows, elsewhere, parts, ROWS.schema, {}, 5)


class _Refusing(BaseHTTPRequestHandler):
    """A store that knows nobody."""

    def do_HEAD(self) -> None:
        self.send_error(403)

    def do_GET(self) -> None:
        self.send_error(403)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing(options: dict[str, str]) -> Iterator[Lake]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Lake("s3://lake/some/where", {**options, "endpoint": f"http://127.0.0.1:{server.server_port}"})
        server.shutdown()
        thread.join()


async def test_checks_of_a_store_that_refuses_say_that_it_is_away(options: dict[str, str], refusing: Lake) -> None:
    """INV-183: a look and a hash are not told apart from damage by an error of the store's own."""
    files = LakeFiles(Lake("s3://lake/some/where", options, native=False))
    (write,) = (await TableWriter(files).write(work(target()), {0: ROWS})).writes
    refused = Checks(refusing)
    (entry,) = write.files
    for check in (refused.damage, refused.quick_damage, lambda one: refused.unchanged([one])):
        with pytest.raises(Unavailable, match=f"the lake does not answer for {entry.path}"):
            await asyncio.to_thread(check, entry)
    with pytest.raises(Unavailable, match="the lake does not answer"):
        await asyncio.to_thread(refused.proven, [entry], UNBOUNDED)


def test_a_store_that_refuses_is_an_error_of_ours() -> None:
    lake, told = Lake("s3://lake/some/where"), r"the lake does not answer for a/b\.parquet: 403$"
    with pytest.raises(Unavailable, match=told), reading("a/b.parquet", lake):
        raise PermissionDeniedError("403\nDebug source: ...")
