"""What a loop's frames came to, gathered: small results stand in the event, large ones in a manifest of references."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from noetl.ledger.database import Database
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.codec import JSON, decode_table, encode_json
from noetl.payloads.port import PayloadStore

INLINE_BYTES = 32_768
"""Up to this many bytes of frames' results stand in the step's own result."""

_COMMITTED = """
SELECT frame_id, current_index, payload_ref, meta FROM noetl.event
WHERE execution_id = $1 AND loop_id = $2 AND event_type IN ('frame.committed', 'loop.shard.done')
  AND payload_ref IS NOT NULL ORDER BY current_index, frame_id
"""


class Gathering:
    """Reads the frames' payloads of a loop."""

    def __init__(self, database: Database, payloads: PayloadStore) -> None:
        self._database = database
        self._payloads = payloads

    async def gather(self, scope: Scope, execution_id: int, loop_id: int) -> tuple[list[Any] | None, PayloadRef | None]:
        """Return the rows' results, or the reference of a manifest where they are many."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_COMMITTED, execution_id, loop_id)
        refs = [msgspec.convert(orjson.loads(row["payload_ref"]), PayloadRef) for row in rows]
        if not refs:
            return None, None
        if sum(ref.bytes for ref in refs) <= INLINE_BYTES:
            results: list[Any] = []
            for ref in refs:
                results += rows_of(await self._payloads.fetch(scope, ref))
            return results, None
        manifest = {
            "frames": [
                {
                    "frame_id": str(row["frame_id"]),
                    "first_index": row["current_index"],
                    "rows": ref.rows,
                    "ref": msgspec.to_builtins(ref),
                }
                for row, ref in zip(rows, refs, strict=True)
            ]
        }
        return None, await self._payloads.store(scope, encode_json(manifest), JSON)


def rows_of(data: bytes) -> list[Any]:
    """Return what the rows of a frame's payload came to, in their order; a failed row gives None."""
    table = decode_table(data)
    values: list[Any] = table.column("data").to_pylist()
    if (table.schema.field("data").metadata or {}).get(b"noetl.form") == b"json":
        return [None if value is None else orjson.loads(value) for value in values]
    return values
