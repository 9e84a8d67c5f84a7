"""The event lake's smaller parts: what is put together, where checkpoints may be, and how a point becomes a condition."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import duckdb
import pytest

from noetl.cli.ledger.lake import _show_verified
from noetl.errors import ConfigError, Corrupt
from noetl.model.dataset import FileEntry
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.datasets.streamed import bundle_of
from noetl.spark.event_lake.checkpoints import checkpoint_address, planned_mark, prove_shared
from noetl.spark.event_lake.compaction import crowded_files, small_files
from noetl.spark.event_lake.definition import (
    COLUMNS,
    JOB,
    PARTITION_BY,
    condition,
    day_of,
    lake_dag,
    next_state,
    partition_of,
)
from noetl.spark.lake.storage import Lake

MB = 1 << 20
NO_SPARK = cast("Any", None)


def entry(number: int, size: int) -> FileEntry:
    return FileEntry(path=f"{number}.parquet", bytes=size, rows=1, sha256=str(number))


def test_small_files_are_put_together_and_one_alone_is_left_as_it_is() -> None:
    large, small, other = entry(1, 100 * MB), entry(2, MB), entry(3, 2 * MB)
    assert small_files([large, small, other], 128 * MB) == [small, other]
    assert small_files([large, small], 128 * MB) == []


def test_files_of_like_size_are_put_together_when_there_are_too_many_of_them() -> None:
    tiny = [entry(number, 1000 + number) for number in range(8)]
    middle = [entry(100 + number, 10 * MB) for number in range(3)]
    assert crowded_files([*tiny, *middle], 128 * MB, 8) == tiny, "larger ones are not written again for their sake"
    assert crowded_files([*tiny[:7], *middle], 128 * MB, 8) == []
    assert crowded_files([*tiny, *middle], 128 * MB, 3) == [*tiny, *middle]


def test_a_lake_is_one_generation_for_each_set_of_upcasters_and_build() -> None:
    first, same = (bundle_of(lake_dag("none", 1)) for _ in range(2))
    assert first.digest == same.digest
    assert bundle_of(lake_dag("other", 1)).digest != first.digest != bundle_of(lake_dag("none", 2)).digest
    job = first.dag.job(JOB)
    assert job.partition_by == PARTITION_BY
    assert {column.name for column in job.schema.columns} == set(COLUMNS)


def test_paths_spell_tenant_organization_and_day() -> None:
    key = partition_of(Scope("acme", "main"), "2026-05-16")
    assert key == "tenant=acme/organization=main/day=2026-05-16"
    assert day_of(key) == "2026-05-16"


def test_no_two_commits_save_the_same_state() -> None:
    assert next_state({"mark": "a", "commits": 4}) == {"mark": "a", "commits": 5}
    assert next_state({}, mark="b") == {"mark": "b", "commits": 1}


def test_a_checkpoint_is_in_the_lake_or_where_the_settings_say_and_never_where_spark_cannot_write(
    tmp_path: Path,
) -> None:
    assert checkpoint_address(Lake(str(tmp_path)), None, "a/b") == str(tmp_path / "a/b")
    bucket = Lake("s3://bucket/lake", native=False)
    assert checkpoint_address(bucket, "/shared/", "a/b") == "/shared/a/b"
    assert checkpoint_address(Lake("s3://bucket/lake"), None, "a") == "s3a://bucket/lake/a"
    with pytest.raises(ConfigError, match="no connector"):
        checkpoint_address(bucket, None, "a/b")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        prove_shared(NO_SPARK, str(tmp_path / "file" / "below"))


def test_the_mark_of_a_batch_is_what_spark_wrote_ahead(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    mark = Mark.zero().with_position(3, 77)
    (offsets / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"mark": "{mark}"}}')
    (offsets / "1").write_text("v1\n{}\n")
    assert planned_mark(NO_SPARK, str(tmp_path), 0) == mark
    assert planned_mark(NO_SPARK, str(tmp_path), 2) is None
    with pytest.raises(Corrupt, match="batch 1"):
        planned_mark(NO_SPARK, str(tmp_path), 1)


def test_a_point_becomes_a_condition_over_positions() -> None:
    mark = Mark.zero().with_position(0, 2).with_position(1, 1)
    with duckdb.connect() as connection:
        rows = connection.sql(
            "SELECT shard, position FROM (VALUES (0, 1), (0, 3), (1, 1), (1, 2), (2, 1)) AS events (shard, position)"
            f" WHERE {condition(mark)}"
        ).fetchall()
    assert rows == [(0, 1), (1, 1)]


def test_the_first_difference_is_told_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    same = {"rows": 2, "checksum": "ab"}
    found = {
        "shards": [{"shard": 4, "ledger": same, "lake": {"rows": 1, "checksum": "cd"}}],
        "lake": {"rows": 1, "checksum": "cd"},
        "ranges": 1,
        "differing": 1,
        "mark": "m1.x",
        "difference": {
            "shard": 4, "position": 9, "what": "meta differs", "column": "meta", "ledger": "{}", "lake": "null",
        },
    }  # fmt: skip
    _show_verified(found)
    said = capsys.readouterr().out
    assert "DIFFERS" in said
    assert "position 9 of shard 4: meta differs" in said
