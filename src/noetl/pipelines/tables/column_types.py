"""Column types in two spellings: Arrow's, and the short ones of Spark that manifests and DAG files use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from noetl.errors import InputError
from noetl.model.dataset import Field

_TO_ARROW: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TO_SPARK: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.null(): "string",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_ARRAY: Final = re.compile(r"array<(.+)>")


def fields_of(schema: pa.Schema) -> tuple[Field, ...]:
    """Return the columns of an Arrow schema as a manifest has them."""
    return tuple(Field(one.name, spark_type(one.type), one.nullable) for one in schema)


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema of a manifest's columns."""
    return pa.schema([pa.field(one.name, arrow_type(one.type), one.nullable) for one in fields])


def spark_type(kind: pa.DataType) -> str:
    """Return Spark's short name of an Arrow type."""
    if kind in _TO_SPARK:
        return _TO_SPARK[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{one.name}:{spark_type(one.type)}' for one in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    raise InputError(f"a column of the Arrow type {kind} cannot be stored in a dataset")


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of Spark's short name."""
    found = _TO_ARROW.get(name.lower())
    if found is not None:
        return found
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _ARRAY.fullmatch(name):
        return pa.list_(arrow_type(match[1]))
    if name.startswith("struct<") and name.endswith(">"):
        parts = (part.partition(":") for part in _split(name[7:-1]))
        return pa.struct([(column.strip(), arrow_type(kind.strip())) for column, _, kind in parts])
    if name.startswith("map<") and name.endswith(">"):
        key, value = _split(name[4:-1])
        return pa.map_(arrow_type(key.strip()), arrow_type(value.strip()))
    raise InputError(f"the type {name!r} of a column is not known", hint="write it as Spark does: bigint, string, ...")


def _split(text: str) -> list[str]:
    """Split at commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]
