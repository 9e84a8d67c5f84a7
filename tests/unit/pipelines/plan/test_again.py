"""Work that is asked for again: names of its own that never change, and ranges of rows held against statistics."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.model.dataset import Field, FileEntry, Manifest
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.file_statistics import row_range
from noetl.pipelines.plan.wanted_tasks import emitted_again, wanted
from noetl.pipelines.plan.wanted_values import InputOf, InputView, JobView, PartView

GENERATION = "53cd2070-82f0-5f9f-8c9c-965bcf0d0418"
JOB = JobView(
    generation=GENERATION,
    job_hash="h",
    inputs=(InputOf(alias="o", dataset_uuid="d", partition_by=("day",)),),
    partition_by=("day",),
    strategy="PerPartition",
)
INPUTS = {"o": InputView(dataset_version="g", parts=(PartView(partition_key="day=1", version=3, content_digest="c"),))}


def test_the_ids_of_what_is_asked_for_again_never_change() -> None:
    assert identity.again_id(GENERATION, "x") == "7bc6f241-5710-8278-b408-7dc98f8d122f"
    assert identity.is_again(identity.again_id(GENERATION, "x"))
    assert not identity.is_again(identity.task_id(GENERATION, "x"))


def test_equal_work_that_is_asked_for_is_another_task_with_the_same_contents() -> None:
    (plain,) = wanted(JOB, INPUTS)
    (again,) = wanted(JOB, INPUTS, invalidation="7")
    (other,) = wanted(JOB, INPUTS, invalidation="8")
    assert len({plain.task_id, again.task_id, other.task_id}) == 3
    assert plain.memo_key == again.memo_key
    assert [identity.is_again(one.task_id) for one in (plain, again, other)] == [False, True, True]


def test_a_source_makes_each_partition_of_a_backfill_under_a_name_of_its_own() -> None:
    source = JobView(generation=GENERATION, job_hash="h", partition_by=("day",))
    made = [emitted_again(source, {}, run, key) for run in (1, 2) for key in ("day=1", "day=2")]
    assert len({one.task_id for one in made}) == len({one.memo_key for one in made}) == 4
    assert [one.partition_key for one in made] == ["day=1", "day=2"] * 2


@pytest.mark.parametrize(
    ("kind", "where", "low", "high", "meets"),
    [
        ("int", "c:5..10", 0, 4, False),
        ("int", "c:5..10", 0, 5, True),
        ("int", "c:5..10", 10, 20, False),
        ("bigint", "c:9..", 10, 100, True),
        ("string", "c:9..", "10", "100", False),
        ("double", "c:..0.5", 0.5, 1.0, False),
        ("decimal(6,2)", "c:9.50..10", "9.49", "9.49", False),
        ("decimal(6,2)", "c:9.50..10", "9.5", "12.00", True),
        ("date", "c:2026-02-01..2026-03-01", "2026-01-01", "2026-01-31", False),
        ("timestamp", "c:2026-02-01..", "2026-01-31T23:00:00.000000+00:00", "2026-02-01T00:00:00.000000+00:00", True),
        ("timestamp", "c:2026-02-01T00:00:00Z..", "2026-01-01T00:00:00", "2026-01-31T23:59:59.999999", False),
    ],
)
def test_a_range_meets_what_its_bounds_do_not_exclude(kind: str, where: str, low: Any, high: Any, meets: bool) -> None:
    entry = FileEntry(path="p", bytes=1, rows=1, sha256="s", stats={"c": {"min": low, "max": high}})
    manifest = Manifest(dataset_version="g", partition_key="all", version=1, schema=(), files=(entry,))
    assert row_range(where, (Field("c", kind),)).may_be_in(manifest) is meets


def test_a_partition_column_tells_more_than_files() -> None:
    entry = FileEntry(path="p", bytes=1, rows=1, sha256="s")
    manifest = Manifest(dataset_version="g", partition_key="day=2026-01-31", version=1, schema=(), files=(entry,))
    columns = (Field("day", "date"), Field("n", "int"))
    assert not row_range("day:2026-02-01..", columns).may_be_in(manifest)
    assert row_range("day:..2026-02-01", columns).may_be_in(manifest)
    assert row_range("n:1..2", columns).may_be_in(manifest)
