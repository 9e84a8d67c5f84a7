"""What differs between two generations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.errors import Corrupt, InputError
from noetl.pipelines.datasets.comparison import ColumnChange, Example, Side, compare
from noetl.pipelines.tables.column_types import fields_of


def side(directory: Path, name: str, *tables: pa.Table) -> Side:
    """Write each table as a file of one side."""
    paths = []
    for place, table in enumerate(tables):
        # A directory that looks like a partition, and a name that looks like a pattern, are neither.
        path = directory / f"it's [{name}]" / "id=99" / f"{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        paths.append(path)
    return Side(fields=fields_of(tables[-1].schema), files=tuple(paths))


OLD = pa.table({"id": [1, 2, 3, None], "a": ["x", "y", None, "n"], "b": [1, 2, 3, 4]})
NEW = pa.table({"id": [1, 3, 4, None], "a": ["x", "z", "w", "n"], "b": [1, 3, 4, 5]})


def test_rows_are_told_apart_by_their_key(tmp_path: Path) -> None:
    found = compare(side(tmp_path, "old", OLD), side(tmp_path, "new", NEW), ["id"])
    assert (found.rows_before, found.rows_after) == (4, 4)
    assert (found.added, found.removed, found.changed) == (1, 1, 2)
    assert found.columns == {"a": 1, "b": 1}
    assert found.examples == (
        Example(change="added", row={"id": 4, "a": "w", "b": 4}),
        Example(change="removed", row={"id": 2, "a": "y", "b": 2}),
        Example(change="changed", row={"id": 3}, columns={"a": [None, "z"]}),
        Example(change="changed", row={"id": None}, columns={"b": [4, 5]}),
    )


def test_without_a_key_whole_rows_are_compared_as_often_as_they_occur(tmp_path: Path) -> None:
    old, new = pa.table({"a": [1, 1, 2]}), pa.table({"a": [1, 3, 3]})
    found = compare(side(tmp_path, "old", old), side(tmp_path, "new", new), ())
    assert (found.added, found.removed, found.changed) == (2, 2, 0)
    assert [(one.change, one.row) for one in found.examples] == [
        ("added", {"a": 3}),
        ("added", {"a": 3}),
        ("removed", {"a": 1}),
        ("removed", {"a": 2}),
    ]


def test_columns_that_come_go_or_change_their_type_are_told(tmp_path: Path) -> None:
    old = pa.table({"id": [1], "gone": [1], "n": pa.array([7], pa.int32()), "t": [5]})
    new = pa.table({"id": [1], "n": [7], "t": ["5"], "come": [1]})
    found = compare(side(tmp_path, "old", old), side(tmp_path, "new", new), ["id"])
    assert found.schema == (
        ColumnChange(name="gone", change="removed", before="bigint"),
        ColumnChange(name="come", change="added", after="bigint"),
        ColumnChange(name="n", change="type", before="int", after="bigint"),
        ColumnChange(name="t", change="type", before="bigint", after="string"),
    )
    assert (found.changed, found.is_empty) == (0, False)


def test_files_of_an_older_schema_count_with_nulls(tmp_path: Path) -> None:
    grown = side(tmp_path, "new", pa.table({"id": [1]}), pa.table({"id": [2], "a": ["x"]}))
    whole = side(tmp_path, "old", pa.table({"id": [1, 2], "a": [None, "x"]}))
    assert compare(whole, grown, ["id"]).is_empty


def test_equal_generations_differ_in_nothing(tmp_path: Path) -> None:
    nested = pa.table({"id": [1, 2], "s": [{"x": [1]}, None], "m": [[1.5], [float("nan")]]})
    sides = side(tmp_path, "old", nested), side(tmp_path, "new", nested)
    assert compare(*sides, ["id"]).is_empty
    assert compare(*sides, ()).is_empty


def test_a_side_without_files_has_no_rows(tmp_path: Path) -> None:
    empty = Side(fields=fields_of(OLD.schema), files=())
    found = compare(empty, side(tmp_path, "new", NEW), ["id"])
    assert (found.rows_before, found.added, found.removed) == (0, 4, 0)


def test_a_key_that_is_not_unique_is_given_up_unless_one_insists(tmp_path: Path) -> None:
    sides = side(tmp_path, "old", pa.table({"id": [1, 1]})), side(tmp_path, "new", pa.table({"id": [1]}))
    found = compare(*sides, ["id"])
    assert (found.key, found.removed) == ((), 1)
    assert found.notes == (
        "whole rows are compared, since 2 rows of the generation before share their id with another",
    )
    with pytest.raises(InputError, match="cannot be told apart by id: 2 rows"):
        compare(*sides, ["id"], insist=True)
    with pytest.raises(InputError, match="not both generations have the column 'no'"):
        compare(*sides, ["no"], insist=True)


def test_a_file_that_is_gone_or_damaged_is_an_error_of_ours(tmp_path: Path) -> None:
    new = side(tmp_path, "new", NEW)
    new.files[0].write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(Corrupt, match="cannot be read"):
        compare(side(tmp_path, "old", OLD), new, ())
    new.files[0].unlink()
    with pytest.raises(Corrupt, match="cannot be read"):
        compare(side(tmp_path, "old", OLD), new, ())
