"""The webhook operator: what was sent to a source becomes its rows. The same is done before a request is accepted.

Config: `rows` (where the rows lie in what is sent), `unknown_fields` (`ignore` or `refuse`, where columns are declared),
`delivery` (whether rows tell how they came).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from noetl.kernel.payloads.port import PayloadStore
from noetl.language.dag.operators import DELIVERY_COLUMNS
from noetl.model.dataset import Field
from noetl.model.ids import snowflake_time
from noetl.model.stream import Scope
from noetl.pipelines.tables.column_types import arrow_type, schema_of
from noetl.pipelines.tables.json_rows import json_rows, table_of
from noetl.pipelines.worker.in_process import Produced
from noetl.spark.drivers.protocol import Work


class WebhookOperator:
    """Fetches what was sent and makes a table of it."""

    def __init__(self, scope: Scope, payloads: PayloadStore) -> None:
        self._scope = scope
        self._payloads = payloads

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Make the rows of one request; a build, which nobody sent anything for, makes an empty table at most."""
        grant = work.grant
        target = grant.targets[0]
        if grant.sent is None:
            return Produced(tables={0: schema_of(target.declared).empty_table()} if target.declared else {})
        body = await self._payloads.fetch(self._scope, grant.sent)
        run = grant.execution_id
        table = await asyncio.to_thread(sent_table, body, grant.config, target.declared, target.schema, run)
        return Produced(tables={0: table}, metrics={"bytes": len(body), "rows": table.num_rows})


def sent_table(
    body: bytes,
    config: Mapping[str, Any],
    declared: Sequence[Field],
    standing: Sequence[Field],
    execution_id: int,
) -> pa.Table:
    """Return what was sent as a table; `standing` are the columns of the dataset so far, where none are declared."""
    rows = json_rows(body, str(config.get("rows") or ""))
    own = [one for one in declared or standing if one.name not in DELIVERY_COLUMNS or not config.get("delivery")]
    others = str(config.get("unknown_fields") or "ignore") if declared else "keep"
    table = table_of(rows, schema_of(own) if own else None, others=others)
    return _delivered(table, len(rows), execution_id) if config.get("delivery") else table


def _delivered(table: pa.Table, rows: int, execution_id: int) -> pa.Table:
    told = (str(execution_id), 0, snowflake_time(execution_id))
    for (name, spelled), value in zip(DELIVERY_COLUMNS.items(), told, strict=True):
        kind = arrow_type(spelled)
        values = range(rows) if name == "_row" else [value] * rows
        table = table.append_column(pa.field(name, kind, nullable=False), pa.array(values, kind))
    return table
