"""Exactly the pinned files are read, and exactly the files of the attempt are told, natively and through Arrow."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from noetl.errors import InputError
from noetl.model.dataset import Field, partition_key
from noetl.spark.lake.reader import frame_of, merged_schema
from noetl.spark.lake.storage import Lake, partition_directory

ORDERS = "id bigint;day string;amount int"
both_ways = pytest.mark.parametrize("rig", ["native", "arrow"], indirect=True)


@both_ways
def test_rows_of_every_plain_type_come_through_unchanged(rig):
    schema = "n bigint;s string;d date;t timestamp;x double;m decimal(10,2);b boolean;q map<string,int>"
    rows = [
        (
            1,
            "é",
            date(2026, 1, 2),
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            0.1,
            Decimal("1.20"),
            True,
            [("a", 1)],
        ),
        (None,) * 8,
    ]
    assert rig.sql("SELECT * FROM given", rig.taking("given", rig.part(schema, rows))) == sorted(rows, key=repr)


@both_ways
def test_each_file_is_told_with_the_digest_of_its_bytes(rig):
    part = rig.part(ORDERS, [(n, f"d{n % 3}", n) for n in range(9)], files=3)
    target = rig.target(partition_by=("day",))
    (result,) = rig.ok(rig.work("spark_sql", {"sql": "SELECT * FROM orders"}, [rig.taking("orders", part)], [target]))
    assert [write.partition_key for write in result.writes] == ["day=d0", "day=d1", "day=d2"]
    for write in result.writes:
        assert [one.name for one in write.schema] == ["id", "day", "amount"]
        for entry in write.files:
            file = Path(rig.lake.directory, entry.path)
            assert entry.path.startswith(f"made/{write.partition_key}/commit={result.task_id}-1-")
            assert hashlib.sha256(file.read_bytes()).hexdigest() == entry.sha256
            assert (file.stat().st_size, pq.read_metadata(file).num_rows) == (entry.bytes, entry.rows)
            assert entry.stats["day"]["min"] == entry.stats["day"]["max"] == write.partition_key[4:]
    assert len(rig.rows(*result.writes)) == 9


@both_ways
def test_rows_are_split_by_values_that_make_no_plain_path(rig):
    values = ["a/b", "", None, "x=y", "ü %", "1:2"]
    part = rig.part("id int;v string", list(enumerate(values)))
    target = rig.target(partition_by=("v",))
    (result,) = rig.ok(rig.work("spark_sql", {"sql": "SELECT * FROM given"}, [rig.taking("given", part)], [target]))
    keys = {write.partition_key: rig.rows(write) for write in result.writes}
    assert keys == {partition_key(["v"], {"v": value}): [(n, value)] for n, value in enumerate(values)}
    parts = [rig.keep(write.partition_key, write.schema, write.files) for write in result.writes]
    assert len(rig.sql("SELECT * FROM again", rig.taking("again", *parts))) == 6


@both_ways
def test_only_files_after_the_consumed_version_are_read(rig):
    old, new = (rig.part(ORDERS, [(n, "d", n)], version=n) for n in (1, 2))
    files = [entry for part in (old, new) for entry in rig.manifests[part.manifest.sha256].files]
    part = rig.keep("all", rig.manifests[old.manifest.sha256].schema, files, version=2, after=1)
    assert rig.sql("SELECT id FROM orders", rig.taking("orders", part)) == [(2,)]


@both_ways
def test_older_files_have_nulls_and_narrower_numbers_widened(rig):
    old = rig.part("id int;name string", [(1, "a")], "p=1")
    new = rig.part("id bigint;name string;extra double", [(2, "b", 0.5)], "p=2")
    found = rig.sql("SELECT id, extra FROM given", rig.taking("given", old, new))
    assert found == [(1, None), (2, 0.5)]


@both_ways
def test_an_input_without_parts_is_empty_with_the_known_columns(rig):
    (result,) = rig.ok(rig.work("spark_sql", {"sql": "SELECT id FROM orders"}, [rig.taking("orders", schema=ORDERS)]))
    (write,) = result.writes
    assert (write.files, [one.name for one in write.schema]) == ((), ["id"])


def test_an_input_nobody_knows_the_columns_of_is_refused(rig):
    (result,) = rig.run(rig.work("spark_sql", {"sql": "SELECT 1 FROM orders"}, [rig.taking("orders")]))
    assert "'orders' has no rows yet" in result.error


def test_types_that_do_not_fit_together_name_the_column():
    with pytest.raises(InputError, match="'c' as int in one partition and as string"):
        merged_schema([[Field("c", "string")], [Field("c", "int")]], "given")


@pytest.mark.parametrize(
    ("where", "ids"),
    [({"day": "a"}, [1, 4]), ({"day": ["a", None]}, [1, 3, 4]), ({"day": "a", "amount": 7}, [4]), ({"day": []}, [])],
)
def test_where_keeps_rows_by_typed_equality(rig, where, ids):
    part = rig.part(ORDERS, [(1, "a", 5), (2, "b", 5), (3, None, 5), (4, "a", 7)])
    rows = frame_of(rig.session, rig.taking("orders", part, where=where), rig.manifests, rig.lake)
    assert sorted(row.id for row in rows.collect()) == ids


def test_where_on_an_unknown_column_names_it(rig):
    given = rig.taking("orders", rig.part(ORDERS, [(1, "a", 5)]), where={"dya": "a"})
    with pytest.raises(InputError, match="'dya', which it does not have; its columns are id, day, amount"):
        frame_of(rig.session, given, rig.manifests, rig.lake)


def test_where_is_never_sql(rig):
    given = rig.taking("orders", rig.part(ORDERS, [(1, "a", 5)]), where={"day": "x' OR '1'='1"})
    assert frame_of(rig.session, given, rig.manifests, rig.lake).collect() == []


def test_a_partition_column_the_job_leaves_out_is_filled_in(rig):
    part = rig.part("id bigint;n int", [(1, 7)], "n=7")
    target = rig.target(partition_by=("n",))
    assert rig.sql("SELECT id FROM given", rig.taking("given", part), targets=[target], key="n=7") == [(1, 7)]


def test_rows_that_belong_to_another_partition_are_refused(rig):
    part = rig.part(ORDERS, [(1, "a", 5)], "day=a")
    target = rig.target(partition_by=("day",))
    query = {"sql": "SELECT id, 'b' AS day FROM orders"}
    (result,) = rig.run(rig.work("spark_sql", query, [rig.taking("orders", part)], [target], key="day=a"))
    assert "day = 'b' in the partition 'day=a'" in result.error


def test_a_whole_replacement_drops_partitions_it_has_no_rows_for(rig):
    gone = rig.part(ORDERS, [(9, "z", 1)], "day=z")
    part = rig.part(ORDERS, [(1, "a", 5)])
    target = rig.target(partition_by=("day",), parts=(gone,))
    (result,) = rig.ok(rig.work("spark_sql", {"sql": "SELECT * FROM orders"}, [rig.taking("orders", part)], [target]))
    assert result.dropped == ((0, "day=z"),)


def test_declared_columns_come_in_their_order_and_type(rig):
    declared = (Field("amount", "bigint", nullable=False), Field("id", "bigint"))
    given = rig.taking("orders", rig.part(ORDERS, [(1, "a", 5)]))
    work = rig.work("spark_sql", {"sql": "SELECT id, amount FROM orders"}, [given], [rig.target(declared=declared)])
    (result,) = rig.ok(work)
    assert result.writes[0].schema == declared
    assert [(one.label, one.passed) for one in result.checks] == [("not_null(amount)", True)]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT id FROM orders", "declares the column 'amount'"),
        ("SELECT id, 'x' AS amount FROM orders", "declares 'amount' as bigint, but the job returns string"),
        ("SELECT id, id FROM orders", "column 'id' twice"),
    ],
)
def test_an_output_that_does_not_fit_its_declaration_is_refused(rig, sql, words):
    given = rig.taking("orders", rig.part(ORDERS, [(1, "a", 5)]))
    target = rig.target(declared=(Field("id", "bigint"), Field("amount", "bigint")))
    (result,) = rig.run(rig.work("spark_sql", {"sql": sql}, [given], [target]))
    assert words in result.error


def test_two_runs_of_one_attempt_never_share_a_file(rig):
    work = rig.work("spark_sql", {"sql": "SELECT 1 AS one"})
    paths = [entry.path for _ in range(2) for entry in rig.ok(work)[0].writes[0].files]
    assert len(set(paths)) == 2


def test_a_lake_never_shows_its_options():
    lake = Lake("s3://bucket/x", {"secret_access_key": "hush"})
    assert "hush" not in repr(lake)
    assert lake.address("a/b.parquet") == "s3a://bucket/x/a/b.parquet"
    assert partition_directory("day=2026-01-01/region=eu") == "day=2026-01-01/region=eu"


def test_odd_partitions_have_directories_that_differ():
    names = {partition_directory(f"v={value}") for value in ("a%2Fb", "a%3Fb", "x" * 500, "a b")}
    assert len(names) == 4
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEF0123456789=_-.") for name in names)
