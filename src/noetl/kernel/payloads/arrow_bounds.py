"""Tables that others wrote, decoded only where that takes no more room than their bytes: an Arrow stream goes in.

A stream of 224 bytes may speak of 50,000,000 rows of nothing, one of a kilobyte may be packed from gigabytes, and one text
may stand in every row of a dictionary. Offsets that point anywhere would make its reader read anything. All of this is
told by the stream's own headers and buffers, so it is refused before a single value is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from noetl.errors import Corrupt
from noetl.kernel.payloads.codec import decode_table

if TYPE_CHECKING:
    import pyarrow

VALUES_PER_BYTE: Final = 8
"""Truth values take a bit each, and no value that is stored takes less."""


class _Batch(NamedTuple):
    """What the header of a record batch says."""

    rows: int
    values: int
    is_compressed: bool


def decode_bounded(data: bytes | memoryview, *, rows: int | None = None, flat: str | None = None) -> pyarrow.Table:
    """Read an Arrow IPC stream like `decode_table`, and refuse what would come to more than its bytes can hold.

    With `rows` it has to have just so many; the column `flat` has to be of single values.
    """
    import pyarrow

    batches = list(_batches(data))
    if any(batch.is_compressed for batch in batches):
        raise Corrupt("this Arrow IPC stream is compressed, and tables are stored as they are")
    found = sum(batch.rows for batch in batches)
    if rows is not None and found != rows:
        raise Corrupt(f"this table has {found} rows, and it has to have {rows}")
    values = sum(batch.values for batch in batches)
    if values > VALUES_PER_BYTE * len(data):
        raise Corrupt(f"this table is said to have {values} values, which {len(data)} bytes cannot hold")
    table = decode_table(data)
    for field in table.schema:
        _check_type(field.name, field.type, is_flat=field.name == flat)
    try:
        # Offsets that lead out of a buffer or back in it are followed by whoever makes values of them.
        table.validate(full=True)
    except pyarrow.ArrowInvalid as problem:
        raise Corrupt(f"this Arrow IPC stream contradicts itself: {problem}") from None
    return table


def _check_type(name: str, kind: pyarrow.DataType, *, is_flat: bool) -> None:
    """Refuse types of which one stored value may stand in any number of places."""
    import pyarrow
    from pyarrow import types

    refused = (
        types.is_dictionary, types.is_run_end_encoded, types.is_string_view, types.is_binary_view, types.is_list_view,
        types.is_large_list_view, types.is_union,
    )  # fmt: skip
    if any(is_refused(kind) for is_refused in refused) or (is_flat and types.is_nested(kind)):
        raise Corrupt(f"column {name} of this table is {str(kind)[:80]}, of which no result is made")
    if isinstance(kind, pyarrow.BaseExtensionType):
        _check_type(name, kind.storage_type, is_flat=is_flat)
    for number in range(kind.num_fields):
        _check_type(name, kind.field(number).type, is_flat=False)


def _batches(data: bytes | memoryview) -> Iterator[_Batch]:
    """Give what the headers of a stream's record batches say, without a look at what they hold."""
    import pyarrow
    import pyarrow.ipc

    try:
        for message in pyarrow.ipc.MessageReader.open_stream(pyarrow.py_buffer(data)):
            if message.type == "record batch":
                yield _read(memoryview(message.metadata))
            elif message.type != "schema":
                raise Corrupt(f"this Arrow IPC stream has a {message.type}, and tables are stored without")
    except (pyarrow.ArrowInvalid, OSError, struct.error) as problem:
        raise Corrupt(f"this is no Arrow IPC stream: {problem}") from problem


def _read(message: memoryview) -> _Batch:
    """Read the header of a record batch. Arrow's library verified its form, but tells neither rows nor compression."""
    batch = _place(message, _place(message, 0), 2)
    rows_at, nodes_at, packed_at = (_field(message, batch, number) for number in (0, 1, 3))
    rows = 0 if rows_at is None else struct.unpack_from("<q", message, rows_at)[0]
    values = 0
    if nodes_at is not None:
        nodes = nodes_at + _number(message, "<I", nodes_at)
        # Each is the length and the count of nulls of one array, nested ones included.
        values = sum(
            max(0, struct.unpack_from("<q", message, nodes + 4 + 16 * number)[0])
            for number in range(_number(message, "<I", nodes))
        )
    return _Batch(rows, values, packed_at is not None)


def _place(message: memoryview, at: int, number: int | None = None) -> int:
    """Return where the table begins that stands at a place, or in a numbered field of the table there."""
    if number is not None:
        found = _field(message, at, number)
        if found is None:
            raise Corrupt("this Arrow IPC stream has a message without a header")
        at = found
    return at + _number(message, "<I", at)


def _field(message: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a FlatBuffers table is; None if it has none."""
    known = table - _number(message, "<i", table)
    slot = 4 + 2 * number
    if slot + 2 > _number(message, "<H", known):
        return None
    offset = _number(message, "<H", known + slot)
    return table + offset if offset else None


def _number(message: memoryview, form: str, at: int) -> int:
    found: int = struct.unpack_from(form, message, at)[0]
    return found
