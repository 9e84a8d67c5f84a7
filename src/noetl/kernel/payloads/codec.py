"""Values to bytes and back: tables as uncompressed Arrow IPC streams, everything else as canonical JSON. Never pickle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from blake3 import blake3

from noetl.errors import Corrupt
from noetl.model.canonical import SAFE_INTEGER, canonical_json

if TYPE_CHECKING:
    import pyarrow

ARROW_STREAM = "application/vnd.apache.arrow.stream"
JSON = "application/json"


class EncodedTable(NamedTuple):
    """A table as bytes, with what its reference says about it."""

    data: bytes
    rows: int
    schema_digest: str


def encode_table(table: pyarrow.Table | pyarrow.RecordBatch) -> EncodedTable:
    """Write a table as an uncompressed Arrow IPC stream.

    The bytes follow the table's own batches: to give equal rows one digest however they were gathered, bring the
    table into one form first (`combine_chunks`).
    """
    import pyarrow
    import pyarrow.ipc

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema, options=pyarrow.ipc.IpcWriteOptions(compression=None)) as writer:
        writer.write(table)
    return EncodedTable(sink.getvalue().to_pybytes(), table.num_rows, schema_digest(table.schema))


def decode_table(data: bytes | memoryview) -> pyarrow.Table:
    """Read an Arrow IPC stream; the table's columns point into the bytes, which are not copied."""
    import pyarrow
    import pyarrow.ipc

    try:
        with pyarrow.ipc.open_stream(pyarrow.py_buffer(data)) as reader:
            return reader.read_all()
    except (pyarrow.ArrowInvalid, OSError) as problem:
        raise Corrupt(f"this is no Arrow IPC stream: {problem}") from problem


def schema_digest(schema: pyarrow.Schema) -> str:
    """Return the BLAKE3 digest, in hex, of a schema's IPC form."""
    return blake3(schema.serialize().to_pybytes()).hexdigest()


def encode_json(value: object) -> bytes:
    """Write a value as canonical JSON, so that equal values have equal digests."""
    return canonical_json(value)


def decode_json(data: bytes) -> Any:
    """Read canonical JSON.

    Canonical JSON prints 1e16 as 10000000000000000 and refuses integers of that size, so such digits were a float.
    """
    try:
        return json.loads(data, parse_int=_number, parse_constant=_refuse)
    except ValueError as problem:
        raise Corrupt(f"this is no JSON: {problem}") from problem


def _number(text: str) -> int | float:
    value = int(text)
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else float(text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")
