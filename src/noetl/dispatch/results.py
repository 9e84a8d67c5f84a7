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
from noetl.plan.places import Place, fullest, place_of

INLINE_BYTES = 32_768
"""Up to this many bytes of frames' results stand in the step's own result."""

_COMMITTED = """
SELECT e.frame_id, coalesce(e.current_index, d.current_index) AS first_index, e.payload_ref,
       (e.meta ->> 'row_count')::integer AS row_count,
       CASE WHEN e.payload_ref IS NOT NULL AND e.meta ->> 'attempt' = '1' THEN d.meta ->> 'worker' END AS worker
FROM noetl.known_event AS e LEFT JOIN noetl.known_event AS d ON d.execution_id = e.execution_id AND d.loop_id = e.loop_id
    AND d.frame_id = e.frame_id AND d.event_type IN ('frame.dispatched', 'loop.shard.enqueued') AND d.stream_version = 1
WHERE e.execution_id = $1 AND e.loop_id = $2
  AND e.event_type IN ('frame.committed', 'frame.failed', 'loop.shard.done', 'loop.shard.failed')
ORDER BY first_index, e.frame_id
"""


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop's rows came to: results that are few, or a manifest and the node that holds most of what it names."""

    results: list[Any] | None = None
    manifest: PayloadRef | None = None
    near: Place | None = None
    near_bytes: int = 0


class Gathering:
    """Reads the frames' payloads of a loop."""

    def __init__(self, database: Database, payloads: PayloadStore) -> None:
        self._database = database
        self._payloads = payloads

    async def gather(self, scope: Scope, execution_id: int, loop_id: int) -> Gathered:
        """Return the rows' results, or the reference of a manifest where they are many, and which node holds most."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_COMMITTED, execution_id, loop_id)
        refs = [None if row["payload_ref"] is None else _reference(row["payload_ref"]) for row in rows]
        if not any(refs):
            return Gathered()
        if sum(ref.bytes for ref in refs if ref is not None) <= INLINE_BYTES:
            results: list[Any] = []
            for row, ref in zip(rows, refs, strict=True):
                # Rows of a frame that failed as a whole keep their places, so that results and rows stay side by side.
                if ref is None:
                    results += [None] * row["row_count"]
                else:
                    results += rows_of(await self._payloads.view(scope, ref))
            return Gathered(results=results)
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
        # Who worked at a frame again after others is not told by its first dispatch, and counts for no node.
        held = fullest(
            (place_of(row["worker"]), ref.bytes)
            for row, ref in zip(rows, refs, strict=True)
            if ref is not None and row["worker"] is not None
        )
        near, near_bytes = held or (None, 0)
        stored = await self._payloads.store(scope, encode_json(manifest), JSON)
        return Gathered(manifest=stored, near=near, near_bytes=near_bytes)


def _reference(written: str) -> PayloadRef:
    return msgspec.convert(orjson.loads(written), PayloadRef)


def rows_of(data: bytes | memoryview) -> list[Any]:
    """Return what the rows of a frame's payload came to, in their order; a failed row gives None."""
    table = decode_table(data)
    values: list[Any] = table.column("data").to_pylist()
    if (table.schema.field("data").metadata or {}).get(b"noetl.form") == b"json":
        return [None if value is None else orjson.loads(value) for value in values]
    return values
