"""Queries over the results of a loop: payloads of frames go in as DataFrames, the rows of SQL or of a function come out.

A row that came to a mapping gives its fields as columns, any other result is the column `value`; `_index` is the row's
place in the loop. Rows that came to nothing are left out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.errors import InputError
from noetl.spark.drivers.protocol import Rows, RunQuery
from noetl.spark.frames.executor_task import opened

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_TEXTS: Final = "_index long, data string"


def answered(session: SparkSession, query: RunQuery) -> dict[str, Any]:
    """Run a query and return its rows as an Arrow stream."""
    texts = {name: _texts(session, query.reach, rows).cache() for name, rows in query.tables.items()}
    try:
        tables = {name: _typed(text) for name, text in texts.items()}
        found = _result(session, query, tables)
        table: Any = found.limit(query.most + 1).toArrow()
    finally:
        for text in texts.values():
            text.unpersist()
    if table.num_rows > query.most:
        raise InputError(
            f"the query comes to more than {query.most} rows", hint="aggregate or LIMIT it, or set max_rows"
        )
    return {"table": _encoded(table)}


def _result(session: SparkSession, query: RunQuery, tables: dict[str, DataFrame]) -> DataFrame:
    if query.code is not None:
        names: dict[str, Any] = {}
        exec(compile(query.code, "<spark task>", "exec"), names)  # noqa: S102 - what a task is for, like the code of a `python` task
        if not callable(names.get("main")):
            raise InputError("the code of a spark task defines no `main`", hint="def main(session, frames): ...")
        made: DataFrame = names["main"](session, **tables, **query.values)
        return made
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    return session.sql(query.sql or "", args=query.values or None)


def _texts(session: SparkSession, reach: dict[str, Any], rows: Rows) -> DataFrame:
    if not rows.refs:
        return session.createDataFrame([(number, line) for number, line in enumerate(rows.lines) if line], _TEXTS)
    refs = session.createDataFrame([(json.dumps(ref),) for ref in rows.refs], "ref string")
    spread = refs.repartition(min(len(rows.refs), 64))
    return spread.mapInArrow(partial(read_frames, reach), _TEXTS)


def _typed(texts: DataFrame) -> DataFrame:
    """Give the rows the columns that all of them together have."""
    from pyspark.sql.functions import col, concat, from_json, lit

    first = texts.selectExpr("schema_of_variant_agg(parse_json(data)) AS found").first()
    found = str(first.found) if first is not None and first.found else "VOID"
    shape = re.sub(r"DECIMAL\(\d+,\s*\d+\)", "DOUBLE", found).replace("OBJECT<", "STRUCT<")
    shape = re.sub(r"\bVOID\b", "STRING", shape)
    if shape.startswith("STRUCT<"):
        return texts.select(col("_index"), from_json("data", shape).alias("data")).select("data.*", "_index")
    # Only a mapping is read as columns, so a lone value gets one around it.
    wrapped = concat(lit('{"value":'), col("data"), lit("}"))
    return texts.select(col("_index"), from_json(wrapped, f"value {shape}").alias("data")).select("data.*", "_index")


def read_frames(reach: dict[str, Any], batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Read the payloads of frames inside an executor, one after the other, and give their rows as text."""
    from noetl.kernel.payloads.codec import decode_table
    from noetl.model.payload_ref import PayloadRef

    refs = [msgspec.json.decode(ref, type=PayloadRef) for batch in batches for ref in batch.column(0).to_pylist()]
    view = opened(reach).payloads()

    async def viewed(ref: PayloadRef) -> memoryview:
        return await view(ref)

    with asyncio.Runner() as runner:
        for ref in refs:
            yield from rows_as_text(decode_table(runner.run(viewed(ref)))).to_batches()


def rows_as_text(table: pyarrow.Table) -> pyarrow.Table:
    """Return the rows of a frame as (_index, data), their results as JSON text; what came to nothing is left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    data = table.column("data")
    if (table.schema.field("data").metadata or {}).get(b"noetl.form") != b"json":
        if pa.types.is_integer(data.type) or pa.types.is_boolean(data.type):
            data = data.cast(pa.string())
        else:
            texts = [None if value is None else json.dumps(value) for value in data.to_pylist()]
            data = pa.chunked_array([pa.array(texts, pa.string())])
    texts_of = pa.table({"_index": table.column("index"), "data": data})
    return texts_of.filter(pc.is_valid(data))


def _encoded(table: Any) -> bytes:
    from noetl.kernel.payloads.codec import encode_table

    return encode_table(table.combine_chunks()).data
