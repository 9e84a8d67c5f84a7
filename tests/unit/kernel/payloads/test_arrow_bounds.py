"""Tables that somebody else wrote: what would come to more than its bytes is refused before it is decoded."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from noetl.engine.dispatch.loops.results import Part, results_of, rows_of
from noetl.engine.worker.frame_rows import RowEnd
from noetl.engine.worker.reports import ends_of, table_of
from noetl.errors import Corrupt
from noetl.kernel.payloads.arrow_bounds import decode_bounded
from noetl.kernel.payloads.codec import encode_table
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.testing.engines.memory import SCOPE


def stream(table: pa.Table, **options: Any) -> bytes:
    """Write a table as a worker of its own may."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def nothing(rows: int) -> bytes:
    """Write rows of nothing, which take no room."""
    return stream(pa.table({"data": pa.nulls(rows)}))


@pytest.mark.parametrize(
    "values",
    [[None, None], [1, None], ["a", "é" * 2000], [True, False], [1.5, None], [{"a": [1]}, 7], [[], "x"], []],
    ids=repr,
)
def test_what_rows_come_to_is_read_as_it_was_written(values: list[Any]) -> None:
    data = table_of([RowEnd(number, "ok", one, None) for number, one in enumerate(values)], lambda one: one).data
    assert rows_of(data, len(values)) == values
    assert [end.data for end in ends_of(data)] == values


def test_many_rows_of_nothing_are_refused_by_their_count_and_by_their_bytes() -> None:
    """INV-190: a stream of 224 bytes speaks of fifty million rows."""
    data = nothing(50_000_000)
    assert len(data) < 300
    with pytest.raises(Corrupt, match="has 50000000 rows, and it has to have 1"):
        rows_of(data, 1)
    for rows in (None, 50_000_000):
        with pytest.raises(Corrupt, match="bytes cannot hold"):
            rows_of(data, rows)


async def test_a_frame_of_another_number_of_rows_is_never_decoded() -> None:
    """INV-190"""
    payloads = MemoryPayloadStore()
    stored = await payloads.store(SCOPE, nothing(50_000_000), "application/vnd.apache.arrow.stream")
    manifest = {"frames": [{"rows": 1, "ref": stored}]}

    async def view(ref: PayloadRef) -> bytes | memoryview:
        return await payloads.view(SCOPE, ref)

    with pytest.raises(Corrupt, match=f"{stored.uri} cannot be read: this table has 50000000 rows"):
        await results_of(manifest, view)
    assert Part(1, stored).places == 1


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        (pa.table({"data": ["x" * 100_000]}), {"compression": "zstd"}, "compressed"),
        (pa.table({"data": ["x" * 100_000]}), {"compression": "lz4"}, "compressed"),
        (pa.table({"other": ["x" * 100_000], "data": [1]}), {"compression": "zstd"}, "compressed"),
        (pa.table({"data": pa.array(["x" * 100_000] * 50).dictionary_encode()}), {}, "dictionary"),
        (pa.table({"data": pa.RunEndEncodedArray.from_arrays([50], ["x"])}), {}, "run_end_encoded"),
        (pa.table({"data": pa.array(["x" * 90] * 50).cast(pa.string_view())}), {}, "string_view"),
        (pa.table({"data": pa.array([[1]])}), {}, "list"),
        (pa.table({"data": pa.array([{"a": 1}])}), {}, "struct"),
    ],
)
def test_a_form_that_says_much_in_little_is_refused(table: pa.Table, options: dict[str, Any], said: str) -> None:
    """INV-190"""
    with pytest.raises(Corrupt, match=said):
        rows_of(stream(table, **options), table.num_rows)


def test_a_list_of_many_nothings_in_one_row_is_refused() -> None:
    """INV-190: whoever looks at a stored table of any kind is held to its bytes."""
    one = pa.FixedSizeListArray.from_arrays(pa.nulls(50_000_000), 50_000_000)
    with pytest.raises(Corrupt, match="bytes cannot hold"):
        decode_bounded(stream(pa.table({"data": one})))
    within = pa.table({"data": [[1, 2], [3]], "more": [{"a": "x"}, None]})
    assert decode_bounded(encode_table(within).data) == within


@pytest.mark.parametrize("offsets", [(0, 2, 1 << 20), (0, 4, 0), (4, 0, 4), (-(1 << 20), 2, 4)])
def test_texts_whose_offsets_lead_elsewhere_are_refused_and_not_followed(offsets: tuple[int, ...]) -> None:
    """INV-190: they would show what else the server has in memory."""
    data = stream(pa.table({"data": ["ab", "cd"]}))
    was = struct.pack("<3i", 0, 2, 4)
    assert data.count(was) == 1
    with pytest.raises(Corrupt):
        rows_of(data.replace(was, struct.pack("<3i", *offsets)), 2)


def test_what_is_cut_off_or_is_no_stream_is_corrupt() -> None:
    data = encode_table(pa.table({"data": [1, 2, 3]})).data
    for broken in (b"", b"no table", data[: len(data) // 2], data[:-20]):
        with pytest.raises(Corrupt):
            rows_of(broken, 3)
