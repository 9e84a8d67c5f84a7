"""The playbook operator: runs a playbook of the bundle and makes its frames' results the rows of a dataset.

Config: `playbook` (file), `step` (whose results are the rows; default: the step the playbook's result comes from),
`rows` (dotted path to the record or list of records in each result; default: the result itself), `workload`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.loops.results import rows_of
from noetl.engine.plan.state import State
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.dataset import Field
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.bundles import open_bundle
from noetl.pipelines.tables.column_types import schema_of
from noetl.pipelines.tables.json_columns import CannotReadError, carried_column, column_of, text_of
from noetl.pipelines.worker.in_process import OperatorFailed, Produced
from noetl.spark.drivers.protocol import Work

# Frames of the step's last activation: a step that was entered again has begun anew.
_FRAMES: Final = f"""
WITH activation AS (
    SELECT stage_id FROM noetl.event WHERE execution_id = $1 AND event_type = 'stage.opened' AND node_name = $2
    ORDER BY event_id DESC LIMIT 1
)
SELECT payload_ref FROM noetl.event JOIN activation USING (stage_id)
WHERE execution_id = $1 AND event_type IN ({sql_texts(types_of_attempts("completed", at="frame"))}) AND payload_ref IS NOT NULL
ORDER BY current_index, frame_id
"""  # noqa: S608 - ours


class PlaybookOperator:
    """Runs playbooks with the engine and workers of this process."""

    def __init__(self, scope: Scope, engine: Engine, database: Database, payloads: PayloadStore) -> None:
        self._scope = scope
        self._engine = engine
        self._database = database
        self._payloads = payloads

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Run the playbook to its end and gather its rows."""
        grant = work.grant
        config = grant.config
        source = open_bundle(bundle).files[config["playbook"]].decode()
        entry = (await self._engine.catalog.register(self._scope, source, file=config["playbook"])).entry
        workload = dict(config.get("workload") or {})
        if grant.partition_key != "all":
            workload.setdefault("partition", grant.partition_key)
        # The attempt is the request's key: asked again after a crash, it finds the run it started.
        key = f"task/{grant.lease.task_id}/{grant.lease.attempt}"
        state = await self._engine.start(
            self._scope, entry, workload, requested_by=f"job {grant.dag}.{grant.job}", key=key,
            parent_execution_id=grant.execution_id,
        )  # fmt: skip
        try:
            state = await self._engine.finished(self._scope, state.execution_id)
        except asyncio.CancelledError:
            await self._engine.cancel(self._scope, state.execution_id, reason="its task was stopped", by=grant.job)
            raise
        said = f"playbook {entry.path} ran as execution {state.execution_id} and ended as {state.status}\n"
        if state.status != "COMPLETED":
            raise OperatorFailed(f"{said.strip()}: {state.error}", log=said)
        declared = grant.targets[0].declared or grant.targets[0].schema if grant.targets else ()
        types: dict[str, str] = {}
        rows = [row async for row in self._rows(state, config, types)]
        table = await asyncio.to_thread(table_of, rows, declared, types)
        metrics = {"execution_id": str(state.execution_id), "rows": table.num_rows, "swallowed": state.swallowed}
        return Produced(tables={0: table}, metrics=metrics, log=said)

    async def _rows(self, state: State, config: dict[str, Any], types: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        step = config.get("step") or state.result_step
        if step is None or (step not in state.results and "step" in config):
            raise OperatorFailed(f"the playbook has no result of a step {step!r}", retryable=False)
        path = [part for part in str(config.get("rows", "")).split(".") if part]
        async with self._database.transaction(self._scope) as connection:
            frames = await connection.fetch(_FRAMES, state.execution_id, step)
        if frames:
            for frame in frames:
                ref = _reference(frame["payload_ref"])
                for row in records(rows_of(await self._payloads.view(self._scope, ref)), path, types):
                    yield row
            return
        data = await self._engine.executions.data(self._scope, state.results[step])
        for row in records([data], path, types):
            yield row


def records(
    results: Iterable[Any], path: Sequence[str], types: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Give the records found under a path in each result; a list there gives one record per item.

    What a result tells of its columns' types, beside its rows, is noted in `types`.
    """
    for result in results:
        found, around = result, None
        for part in path:
            found, around = (found.get(part), found) if isinstance(found, dict) else (None, None)
        if types is not None and around is not None and isinstance(around.get("types"), dict):
            types.update({str(name): str(told) for name, told in around["types"].items()})
        for record in found if isinstance(found, list) else [found]:
            if record is None:
                continue
            if not isinstance(record, dict):
                record = {"value": record}
            yield record


def table_of(
    rows: Sequence[dict[str, Any]], declared: Sequence[Field], types: Mapping[str, str] | None = None
) -> pa.Table:
    """Return the records as a table of the declared columns, or of those that occur, in the order they are met.

    Without a declaration columns have the type that their result tells, else the one that their values have in common.
    """
    if declared:
        schema = schema_of(declared)
        columns = [_declared([row.get(name) for row in rows], name, schema.field(name).type) for name in schema.names]
        return pa.table(columns, schema=schema)
    told = types or {}
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _found([row.get(name) for row in rows], told.get(name)) for name in names})


def _declared(values: list[Any], name: str, kind: pa.DataType) -> pa.Array:
    try:
        return column_of(values, kind)
    except CannotReadError as problem:
        raise OperatorFailed(f"column {name!r} cannot be read as {kind}: {problem}", retryable=False) from problem


def _found(values: list[Any], told: str | None) -> pa.Array:
    column = None if told is None else carried_column(values, told)
    if column is not None:
        return column
    try:
        column = pa.array(values)
        return column.cast(pa.string()) if pa.types.is_null(column.type) else column
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Values of several shapes have no column type in common but text.
        return pa.array([None if value is None else text_of(value) for value in values], pa.string())


def _reference(written: str) -> PayloadRef:
    import msgspec

    return msgspec.convert(orjson.loads(written), PayloadRef)
