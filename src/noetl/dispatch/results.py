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
SELECT e.frame_id, coalesce(e.current_index, d.current_index) AS first_index, e.payload_ref,
       (e.meta ->> 'row_count')::integer AS row_count
FROM noetl.event AS e LEFT JOIN noetl.event AS d ON d.execution_id = e.execution_id AND d.loop_id = e.loop_id
    AND d.frame_id = e.frame_id AND d.event_type IN ('frame.dispatched', 'loop.shard.enqueued') AND d.stream_version = 1
WHERE e.execution_id = $1 AND e.loop_id = $2
  AND e.event_type IN ('frame.committed', 'frame.failed', 'loop.shard.done', 'loop.shard.failed')
ORDER BY first_index, e.frame_id
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
        refs = [None if row["payload_ref"] is None else _reference(row["payload_ref"]) for row in rows]
        if not any(refs):
            return None, None
        if sum(ref.bytes for ref in refs if ref is not None) <= INLINE_BYTES:
            results: list[Any] = []
            for row, ref in zip(rows, refs, strict=True):
                # Rows of a frame that failed as a whole keep their places, so that results and rows stay side by side.
                if ref is None:
                    results += [None] * row["row_count"]
                else:
                    results += rows_of(await self._payloads.fetch(scope, ref))
            return results, None
        manifest = {
            "frames": [
                {
                    "frame_id": str(row["frame_id"]),
                    "first_index": row["first_index"],
                    "rows": row["row_count"],
                    "ref": None if ref is None else msgspec.to_builtins(ref),
                }
                for row, ref in zip(rows, refs, strict=True)
            ]
        }
        return None, await self._payloads.store(scope, encode_json(manifest), JSON)


def _reference(written: str) -> PayloadRef:
    return msgspec.convert(orjson.loads(written), PayloadRef)


def rows_of(data: bytes) -> list[Any]:
    """Return what the rows of a frame's payload came to, in their order; a failed row gives None."""
    table = decode_table(data)
    values: list[Any] = table.column("data").to_pylist()
    if (table.schema.field("data").metadata or {}).get(b"noetl.form") == b"json":
        return [None if value is None else orjson.loads(value) for value in values]
    return values
