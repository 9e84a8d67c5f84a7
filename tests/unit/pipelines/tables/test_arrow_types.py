"""Column types of Arrow and of Spark stand for each other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from noetl.errors import InputError
from noetl.model.dataset import Field
from noetl.pipelines.tables.column_types import arrow_type, fields_of, schema_of, spark_type

BOTH_WAYS = [
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal(12,2)", "array<string>", "array<struct<a:int,b:array<decimal(3,1)>>>",
    "struct<a:map<string,int>,b:decimal(10,2)>", "map<string,struct<x:double,y:double>>",
]  # fmt: skip


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_type_goes_to_arrow_and_back(name: str) -> None:
    assert spark_type(arrow_type(name)) == name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.uint32(), "bigint"),
        (pa.large_string(), "string"),
        (pa.large_list(pa.int8()), "array<tinyint>"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
        (pa.null(), "string"),
    ],
)
def test_what_only_arrow_tells_apart_is_the_same_to_spark(kind: pa.DataType, name: str) -> None:
    assert spark_type(kind) == name


def test_other_spellings_are_understood() -> None:
    assert arrow_type("LONG") == pa.int64()
    assert arrow_type("decimal(5, 1)") == pa.decimal128(5, 1)


def test_a_schema_keeps_names_order_and_nullability() -> None:
    fields = (Field("id", "bigint", nullable=False), Field("text", "string"))
    assert fields_of(schema_of(fields)) == fields


def test_types_that_are_not_known_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="'money'"):
        arrow_type("money")
    with pytest.raises(InputError, match="duration"):
        spark_type(pa.duration("s"))
