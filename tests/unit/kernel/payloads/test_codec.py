"""Tables and JSON to bytes and back."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from noetl.errors import Corrupt
from noetl.kernel.payloads.codec import decode_json, decode_table, encode_json, encode_table, schema_digest


def _table() -> pa.Table:
    return pa.table({"id": pa.array([1, 2, None], pa.int64()), "tags": [["a"], [], None], "amount": [1.5, 2.5, None]})


def test_a_table_comes_back_equal() -> None:
    encoded = encode_table(_table())
    back = decode_table(encoded.data)
    assert back.equals(_table())
    assert back.schema.equals(_table().schema, check_metadata=True)
    assert encoded.rows == 3


def test_a_batch_comes_back_as_a_table() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    assert decode_table(encode_table(batch).data).to_pydict() == {"n": [1, 2]}


def test_an_empty_table_keeps_its_schema() -> None:
    encoded = encode_table(_table().slice(0, 0))
    assert encoded.rows == 0
    assert decode_table(encoded.data).schema == _table().schema


def test_equal_tables_give_equal_bytes_and_the_schema_has_its_own_digest() -> None:
    assert encode_table(_table()) == encode_table(_table())
    assert encode_table(_table()).schema_digest == encode_table(_table().slice(1)).schema_digest
    assert schema_digest(pa.schema({"a": pa.int64()})) != schema_digest(pa.schema({"a": pa.int32()}))


def test_bytes_that_are_no_arrow_stream_or_no_json_are_corrupt() -> None:
    with pytest.raises(Corrupt, match="Arrow"):
        decode_table(b"not a table")
    with pytest.raises(Corrupt, match="JSON"):
        decode_json(b"{")
    with pytest.raises(Corrupt, match="NaN"):
        decode_json(b"[NaN]")


def test_json_is_canonical() -> None:
    assert encode_json({"b": 1.0, "a": [True, None]}) == b'{"a":[true,null],"b":1}'
    assert decode_json(b'{"a":[true,null]}') == {"a": [True, None]}


@pytest.mark.parametrize("value", [1e16, -9007199254740992.0, 1.5e300, 2**53 - 1, 0.1])
def test_a_number_means_the_same_after_a_round_trip(value: float) -> None:
    assert decode_json(encode_json(value)) == value
    assert encode_json(decode_json(encode_json(value))) == encode_json(value)


def test_the_codec_is_imported_without_arrow() -> None:
    script = "import sys, noetl.kernel.payloads.codec; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
