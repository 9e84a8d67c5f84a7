"""Payload references turned into DataFrames: references of events go in, the rows they stand for come out.

Executors fetch and prove the payloads; the driver sees references alone. A table keeps its own columns and types; what
was stored as JSON gets the columns that all of it together has. `_ref` is the payload's digest, `_row` the row's place.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from noetl.errors import Denied, InputError, Unsupported
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, decode_json, decode_table
from noetl.model.payload_ref import FRAMES, PayloadRef
from noetl.model.stream import Scope
from noetl.spark.source.payload_store import open_store, store_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPREAD: Final = 64
_PLACE: Final = pa.schema([("_ref", pa.string()), ("_row", pa.int64())])
_TEXTS: Final = "_ref string, _row long, data string"

Reference = PayloadRef | Mapping[str, Any] | str
Batches = Iterator[pa.RecordBatch]


def payload_frame(
    session: SparkSession,
    scope: Scope,
    refs: DataFrame | Sequence[Reference],
    reach: Mapping[str, Any],
    columns: str | None = None,
) -> DataFrame:
    """Return the rows of an organization's payloads, given as references or as a DataFrame that has `payload_ref`.

    `reach` says where payloads are: `payloads_url`, or the plain `settings` of a runtime. What was stored as JSON is
    read once more to find its columns, unless they are given as Spark's DDL.
    """
    from pyspark.sql.functions import get_json_object

    # Kept as they are now: the ledger behind them would otherwise be read for every job that follows.
    texts = _references(session, refs).distinct().localCheckpoint()
    kinds = texts.select(
        get_json_object("ref", "$.media_type").alias("kind"), get_json_object("ref", "$.schema_digest").alias("schema")
    )
    found = {(row.kind, row.schema): row["count"] for row in kinds.groupBy("kind", "schema").count().collect()}
    spread = texts.repartition(max(1, min(sum(found.values()), _SPREAD)))
    fetched = partial(_fetched, str(reach.get("payloads_url") or store_url(reach["settings"])), scope)
    if len(found) == 1 and next(iter(found))[0] == ARROW_STREAM:
        schema = _schema(texts, fetched)
        if not _holds_json(schema):
            return _tables(spread, fetched, schema)
    return _typed(spread.mapInArrow(partial(_as_texts, fetched), _TEXTS), columns)


def _references(session: SparkSession, refs: DataFrame | Sequence[Reference]) -> DataFrame:
    from pyspark.sql import DataFrame

    if isinstance(refs, DataFrame):
        return refs.where("payload_ref IS NOT NULL").selectExpr("payload_ref AS ref")
    return session.createDataFrame([(_text(ref),) for ref in refs], "ref string")


def _text(ref: Reference) -> str:
    return ref if isinstance(ref, str) else msgspec.json.encode(ref, order="sorted").decode()


def _fetched(url: str, scope: Scope, batches: Batches) -> Iterator[tuple[PayloadRef, bytes]]:
    """Give payloads with their references, inside an executor."""
    store = open_store(url)
    with asyncio.Runner() as runner:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                ref = msgspec.json.decode(text, type=PayloadRef)
                if ref.problems(scope.tenant_id, scope.organization_id):
                    raise Denied(f"the payload {ref.sha256} is none of {scope.tenant_id}/{scope.organization_id}")
                yield ref, runner.run(store.fetch(scope, ref))


Fetch = Callable[[Batches], Iterator[tuple[PayloadRef, bytes]]]


def _schema(texts: DataFrame, fetched: Fetch) -> pa.Schema:
    """Return the schema of the first of some tables."""
    row = texts.limit(1).mapInArrow(partial(_schema_of, fetched), "schema binary").first()
    assert row is not None
    return pa.ipc.read_schema(pa.py_buffer(row.schema))


def _schema_of(fetched: Fetch, batches: Batches) -> Batches:
    for _, data in fetched(batches):
        schema = decode_table(data).schema.serialize().to_pybytes()
        yield pa.RecordBatch.from_arrays([pa.array([schema], pa.binary())], names=["schema"])


def _holds_json(schema: pa.Schema) -> bool:
    """Tell whether a table is the result of a frame: an index and a text of JSON for each row."""
    return schema.names == ["index", "data"] and (schema.field("data").metadata or {}).get(b"noetl.form") == b"json"


def _tables(texts: DataFrame, fetched: Fetch, schema: pa.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    clash = sorted(set(schema.names) & set(_PLACE.names))
    if clash:
        raise InputError(
            f"the payload has columns {', '.join(clash)} of its own, which are the names of its place here"
        )
    columns = from_arrow_schema(pa.schema([*schema.remove_metadata(), *_PLACE]), prefer_timestamp_ntz=True)
    return texts.mapInArrow(partial(_as_tables, fetched, to_arrow_schema(columns)), columns)


def _as_tables(fetched: Fetch, schema: pa.Schema, batches: Batches) -> Batches:
    for ref, data in fetched(batches):
        table = decode_table(data)
        placed = table.append_column("_ref", pa.repeat(pa.scalar(ref.sha256), table.num_rows))
        placed = placed.append_column("_row", pa.array(range(table.num_rows), pa.int64()))
        yield from placed.cast(schema).to_batches()


def _as_texts(fetched: Fetch, batches: Batches) -> Batches:
    for ref, data in fetched(batches):
        rows = [(place, json.dumps(row)) for place, row in _rows(ref, data) if row is not None]
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(ref.sha256), len(rows)),
                pa.array([place for place, _ in rows], pa.int64()),
                pa.array([text for _, text in rows], pa.string()),
            ],
            names=["_ref", "_row", "data"],
        )


def _rows(ref: PayloadRef, data: bytes) -> Iterator[tuple[int, Any]]:
    """Give the rows of a payload: those of a table, the items of a list, or the one value it is."""
    if ref.media_type in (JSON, FRAMES):
        value = decode_json(data)
        yield from enumerate(value if isinstance(value, list) else [value])
    elif ref.media_type == ARROW_STREAM:
        table = decode_table(data)
        if _holds_json(table.schema):
            places, texts = table.column("index").to_pylist(), table.column("data").to_pylist()
            yield from ((place, text and json.loads(text)) for place, text in zip(places, texts, strict=True))
        else:
            yield from enumerate(table.to_pylist())
    else:
        raise Unsupported(f"the payload {ref.sha256} is {ref.media_type}, which has no rows")


def _typed(texts: DataFrame, columns: str | None) -> DataFrame:
    """Give the rows columns, those given or all that they together have; what is no mapping is the column `value`."""
    from pyspark.sql.functions import col, concat, from_json, lit

    shape = columns or _shape(texts)
    data = col("data")
    if columns is None and not shape.startswith("STRUCT<"):
        shape, data = f"value {shape}", concat(lit('{"value":'), data, lit("}"))
    return texts.select(from_json(data, shape).alias("data"), "_ref", "_row").select("data.*", "_ref", "_row")


def _shape(texts: DataFrame) -> str:
    first = texts.selectExpr("schema_of_variant_agg(parse_json(data)) AS found").first()
    found = str(first.found) if first is not None and first.found else "VOID"
    shape = re.sub(r"DECIMAL\(\d+,\s*\d+\)", "DOUBLE", found).replace("OBJECT<", "STRUCT<")
    return re.sub(r"\bVOID\b", "STRING", shape)
