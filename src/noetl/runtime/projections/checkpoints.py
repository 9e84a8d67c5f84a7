"""Tells the ledger of epochs that projectors closed: one `checkpoint.committed` per execution and epoch, never two.

Any number of servers may do so at once. Where no projectors of their own run there are no epochs, and this writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from noetl.errors import NoetlError
from noetl.faults import reach
from noetl.kernel.projections.epochs import TELLING
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Draft
from noetl.model.stream import Scope, Stream
from noetl.runtime.locality import process_locator
from noetl.runtime.wiring import Runtime

_log = logging.getLogger(__name__)

AT_ONCE = 64
"""Epochs told in one turn."""

_CLOSED = """
SELECT shard, epoch, position, executions::text AS executions, closed_at FROM noetl.projection_epoch
WHERE NOT told ORDER BY closed_at, shard, epoch LIMIT $1
"""
_TOLD = "UPDATE noetl.projection_epoch SET told = true WHERE shard = $1 AND epoch = $2 AND position = $3"


@asynccontextmanager
async def open_checkpointer(runtime: Runtime) -> AsyncIterator[None]:
    """Tell of epochs for the time of the block."""
    telling = asyncio.get_running_loop().create_task(_run(runtime), name="noetl-checkpointer")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _run(runtime: Runtime) -> None:
    interval = runtime.settings.projections.barrier_interval_ms / 1000
    while True:
        await asyncio.sleep(interval)
        try:
            while await tell_epochs(runtime) == AT_ONCE:
                pass
        except NoetlError as problem:
            _log.warning("epochs of projections could not be told, trying again: %s", problem.message)


async def tell_epochs(runtime: Runtime) -> int:
    """Record what the next closed epochs say, mark them as told, and return how many there were."""
    async with runtime.database.transaction(None, "projector") as connection:
        closed = await connection.fetch(_CLOSED, AT_ONCE)
    for epoch in closed:
        told = [_told(runtime, epoch, *named) for named in orjson.loads(epoch["executions"])]
        await asyncio.gather(*(runtime.ledger.append(stream, [draft]) for stream, draft in told))
        reach("epoch.after_record")
        async with runtime.database.transaction(None, "projector") as connection:
            await connection.execute(_TOLD, epoch["shard"], epoch["epoch"], epoch["position"])
    return len(closed)


def _told(runtime: Runtime, epoch: Any, tenant_id: str, organization_id: str, execution: str) -> tuple[Stream, Draft]:
    kind = BY_NAME[TELLING]
    stream = Scope(tenant_id, organization_id).stream(f"execution/{execution}/checkpoint")
    draft = Draft(
        event_id=runtime.ids.mint(),
        tenant_id=tenant_id,
        organization_id=organization_id,
        execution_id=int(execution),
        stream_id=stream.stream_id,
        aggregate_type=kind.aggregate,
        aggregate_id=execution,
        event_type=kind.name,
        schema_name=kind.schema_name,
        schema_version=kind.version,
        event_time=epoch["closed_at"],
        producer=process_locator(runtime.settings.runtime, "server"),
        idempotency_key=f"checkpoint/{execution}/{epoch['epoch']}/{epoch['position']}",
        meta={"shard": epoch["shard"], "epoch": epoch["epoch"], "position": epoch["position"]},
    )
    return stream, draft
