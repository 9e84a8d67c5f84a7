"""Tables become partitions of datasets, and partitions tables again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.unit.pipelines.works import column, input_of, lake_of, landed, rows_of, standing, target, work

from noetl.errors import InputError
from noetl.pipelines.tables.partitions import TableReader, TableWriter

ORDERS = pa.table({"day": ["1", "2", "1"], "id": [1, 2, 3]})
BY_DAY = {"partition_by": ("day",)}
BY_ID = {"update_strategy": "append", "unique_key": ("id",)}


async def test_rows_are_split_by_the_values_of_the_partition_columns(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    written = await TableWriter(files).write(work(target(**BY_DAY)), {0: ORDERS})
    assert [write.partition_key for write in written.writes] == ["day=1", "day=2"]
    assert await rows_of(files, written.writes[0]) == [{"day": "1", "id": 1}, {"day": "1", "id": 3}]
    (entry,) = written.writes[0].files
    assert entry.path.startswith(f"{target().location}day=1/commit=33333333-3333-5333-8333-333333333333-1-")
    assert entry.stats["id"] == {"min": 1, "max": 3, "nulls": 0}


async def test_a_task_of_one_partition_writes_that_partition_whatever_its_rows_say(tmp_path: Path) -> None:
    written = await TableWriter(lake_of(tmp_path)).write(work(target(**BY_DAY), partition_key="day=9"), {0: ORDERS})
    assert [(write.partition_key, write.files[0].rows) for write in written.writes] == [("day=9", 3)]


async def test_a_whole_replacement_drops_the_partitions_it_no_longer_has(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(**BY_DAY), ORDERS)
    written = await TableWriter(files).write(work(on, manifests=manifests), {0: ORDERS.slice(1, 1)})
    assert [write.partition_key for write in written.writes] == ["day=2"]
    assert written.dropped == ((0, "day=1"),)


async def test_an_output_without_a_table_is_left_as_it_is(tmp_path: Path) -> None:
    written = await TableWriter(lake_of(tmp_path)).write(work(target(), target(output=1)), {1: ORDERS})
    assert [write.output for write in written.writes] == [1]


async def test_an_append_brings_each_key_once_and_never_one_that_stands(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(**BY_ID), pa.table({"id": [1, None], "text": ["old", "old"]}))
    rows = pa.table({"id": [3, 1, None, 2, 3], "text": ["first", "again", "again", "new", "second"]})
    written = await TableWriter(files).write(work(on, manifests=manifests), {0: rows})
    (write,) = written.writes
    assert await rows_of(files, write) == [{"id": 3, "text": "first"}, {"id": 2, "text": "new"}]
    assert write.base_version == 1


async def test_an_append_of_nothing_new_writes_nothing(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(**BY_ID), ORDERS)
    assert (await TableWriter(files).write(work(on, manifests=manifests), {0: ORDERS})).writes == ()


async def test_rows_are_made_unique_again_against_what_landed_meanwhile(tmp_path: Path) -> None:
    files, on = lake_of(tmp_path), target(**BY_ID)
    writer = TableWriter(files)
    (first,) = (await writer.write(work(on), {0: pa.table({"id": [1, 2], "x": [[1], [2]]})})).writes
    (second,) = (await writer.write(work(on), {0: pa.table({"id": [2, 3], "x": [[2], [3]]})})).writes
    again = await writer.unique_again(work(on), second, landed(first))
    assert await rows_of(files, again) == [{"id": 3, "x": [3]}]
    assert again.base_version == 1
    assert (await writer.unique_again(work(on), again, landed(first))).files == again.files
    nothing = await writer.unique_again(work(on), first, landed(first))
    assert nothing.files == ()


async def test_columns_take_the_types_of_their_generation_where_that_loses_nothing(tmp_path: Path) -> None:
    on = target(schema=(column("day", "string"), column("id", "int")))
    (write,) = (await TableWriter(lake_of(tmp_path)).write(work(on), {0: ORDERS})).writes
    assert [(one.name, one.type) for one in write.schema] == [("day", "string"), ("id", "int")]
    large = pa.table({"day": ["1"], "id": [2**40]})
    (write,) = (await TableWriter(lake_of(tmp_path)).write(work(on), {0: large})).writes
    assert write.schema[1].type == "bigint"


@pytest.mark.parametrize("given", [{"partition_by": ("hour",)}, {"update_strategy": "append", "unique_key": ("hour",)}])
async def test_a_column_that_is_needed_and_not_there_is_named(tmp_path: Path, given: dict[str, object]) -> None:
    with pytest.raises(InputError, match="'hour', and the rows have no such column"):
        await TableWriter(lake_of(tmp_path)).write(work(target(**given)), {0: ORDERS})


async def test_checks_of_an_append_are_about_what_will_stand(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(**BY_ID), ORDERS)
    checks = ({"kind": "row_count", "min": 4}, {"kind": "range", "columns": ["id"], "min": 4})
    given = work(on, manifests=manifests, checks=checks)
    written = await TableWriter(files).write(given, {0: pa.table({"day": ["3"], "id": [4]})})
    assert [(one.label, one.passed) for one in written.checks] == [("row_count", True), ("range(id)", True)]


async def test_columns_declared_not_to_be_null_are_checked(tmp_path: Path) -> None:
    on = target(declared=(column("day", "string", nullable=False), column("id", "bigint")))
    written = await TableWriter(lake_of(tmp_path)).write(work(on), {0: pa.table({"day": ["1", None], "id": [1, 2]})})
    assert [(one.label, one.passed, one.detail) for one in written.checks] == [
        ("not_null(day)", False, "1 rows are null")
    ]


async def test_an_input_is_read_after_its_cursor_and_where_its_edge_says(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(), ORDERS)
    reader = TableReader(files)
    assert (await reader.read(work(manifests=manifests), input_of(on))).num_rows == 3
    chosen = await reader.read(work(manifests=manifests), input_of(on, where={"day": ["2", "9"]}))
    assert chosen.to_pylist() == [{"day": "2", "id": 2}]
    seen = msgspec.structs.replace(on, parts=tuple(msgspec.structs.replace(part, after=1) for part in on.parts))
    assert (await reader.read(work(manifests=manifests), input_of(seen))).num_rows == 0


async def test_the_greatest_value_comes_from_statistics_unless_rows_are_left_out(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(), ORDERS)
    reader = TableReader(files)
    assert await reader.greatest(work(manifests=manifests), input_of(on, where={"day": "2"}), "id") == 2
    await asyncio.to_thread(shutil.rmtree, tmp_path / "default")
    assert await reader.greatest(work(manifests=manifests), input_of(on), "id") == 3


async def test_an_input_without_any_part_has_the_columns_of_its_generation(tmp_path: Path) -> None:
    empty = input_of(target(), schema=(column("day", "string"),), where={"day": "1"})
    assert (await TableReader(lake_of(tmp_path)).read(work(), empty)).column_names == ["day"]


async def test_files_of_an_older_schema_are_read_with_the_newer_one(tmp_path: Path) -> None:
    files = lake_of(tmp_path)
    on, manifests = await standing(files, target(**BY_DAY), ORDERS)
    first, second = (manifests[part.manifest.sha256] for part in on.parts)
    wider = msgspec.structs.replace(second, schema=(*second.schema[:1], column("id", "double"), column("n", "string")))
    manifests = {**manifests, on.parts[1].manifest.sha256: wider}
    table = await TableReader(files).read(work(manifests=manifests), input_of(on))
    assert first.schema[1].type == "bigint"
    assert table.to_pylist()[-1] == {"day": "2", "id": 2.0, "n": None}
