"""Which frame of a playbook a row is the result of: frames are looked through until one gives exactly this row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa

from noetl.dispatch.results import rows_of
from noetl.errors import NoetlError
from noetl.ledger.database import Database
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.dataset import Field
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.port import PayloadStore
from noetl.pipelines.explain_values import FrameOf, Maker
from noetl.pipelines.operators.playbook import records, table_of

_DONE: Final = sql_texts(types_of_attempts("completed", at="frame"))
_FRAMES: Final = f"""
SELECT e.event_id, e.frame_id, e.payload_ref, e.node_name, s.node_name AS step FROM noetl.event AS e
LEFT JOIN LATERAL (
    SELECT o.node_name FROM noetl.event AS o
    WHERE o.execution_id = $1 AND o.event_type = 'stage.opened' AND o.stage_id = e.stage_id LIMIT 1
) AS s ON true
WHERE e.execution_id = $1 AND e.event_type IN ({_DONE}) AND e.payload_ref IS NOT NULL
ORDER BY e.event_id
"""  # noqa: S608 - ours
_KEPT: Final = 64


class Frames:
    """Looks into frames of one organization; what was read of a playbook's run is kept for the next row."""

    def __init__(self, scope: Scope, database: Database, payloads: PayloadStore) -> None:
        self._scope = scope
        self._database = database
        self._payloads = payloads
        self._listed: dict[str, list[Any]] = {}
        self._rows: dict[int, list[dict[str, Any]]] = {}

    async def frame_of(self, maker: Maker, values: dict[str, Any], schema: Sequence[Field]) -> FrameOf | None:
        """Return the frame that gave a row; None if the playbook made it without frames, or they are not kept."""
        ran = maker.playbook_execution
        assert ran is not None
        if ran not in self._listed:
            async with self._database.transaction(self._scope) as connection:
                self._listed[ran] = list(await connection.fetch(_FRAMES, int(ran)))
        step = maker.playbook.get("step")
        path = [part for part in str(maker.playbook.get("rows", "")).split(".") if part]
        for frame in self._listed[ran]:
            of = frame["step"] or frame["node_name"]
            if step is not None and of is not None and of != step:
                continue
            ref = msgspec.convert(orjson.loads(frame["payload_ref"]), PayloadRef)
            if values in await self._made(frame["event_id"], ref, path, schema):
                return FrameOf(
                    execution_id=ran,
                    step=of,
                    frame_id=None if frame["frame_id"] is None else str(frame["frame_id"]),
                    event_id=str(frame["event_id"]),
                    payload=ref.uri,
                )
        return None

    async def _made(
        self, event_id: int, ref: PayloadRef, path: Sequence[str], schema: Sequence[Field]
    ) -> list[dict[str, Any]]:
        """Return the rows a frame gave, as the dataset has them."""
        if event_id not in self._rows:
            try:
                found = list(records(rows_of(await self._payloads.view(self._scope, ref)), path))
                table = await asyncio.to_thread(table_of, found, schema)
            except (NoetlError, pa.ArrowInvalid):
                return []
            if len(self._rows) >= _KEPT:
                self._rows.clear()
            self._rows[event_id] = table.to_pylist()
        return self._rows[event_id]
