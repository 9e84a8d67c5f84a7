"""Workers that say they are there: an aid for people. No lease depends on it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import orjson
from msgspec import Meta, field

from noetl.api.endpoint import READERS, WORKERS, Call, Routes
from noetl.api.wire import Name, OfWorker, Text, View
from noetl.errors import NotFound

routes = Routes("workers")

QUIET_SECONDS = 60.0
"""A worker that was silent for so long is shown as gone."""

_REGISTER = """
INSERT INTO noetl.worker (tenant_id, organization_id, worker_id, pool, slots, labels) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, organization_id, worker_id) DO UPDATE
SET pool = excluded.pool, slots = excluded.slots, labels = excluded.labels, last_heartbeat = now()
RETURNING worker_id, pool, slots, labels, registered_at, last_heartbeat, true AS alive
"""
_HEARTBEAT = """
UPDATE noetl.worker SET last_heartbeat = now() WHERE worker_id = $1
RETURNING worker_id, pool, slots, labels, registered_at, last_heartbeat, true AS alive
"""
_LIST = """
SELECT worker_id, pool, slots, labels, registered_at, last_heartbeat,
       last_heartbeat > now() - make_interval(secs => $1) AS alive FROM noetl.worker ORDER BY pool, worker_id LIMIT 10000
"""


class WorkerRequest(OfWorker, frozen=True, kw_only=True):
    """A worker and what it offers."""

    pool: Name = "default"
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 1
    labels: dict[Name, Text] = field(default_factory=dict)


class WorkerName(OfWorker, frozen=True, kw_only=True):
    """Which worker it is about."""


class WorkerView(View, frozen=True, kw_only=True):
    """A worker as it was last heard of."""

    worker_id: str
    pool: str
    slots: int
    labels: dict[str, Any]
    registered_at: datetime
    last_heartbeat: datetime
    alive: bool


class PoolView(View, frozen=True, kw_only=True):
    """The workers of one pool."""

    pool: str
    slots: int
    workers: list[WorkerView]


class PoolList(View, frozen=True, kw_only=True):
    """All pools, by name; `slots` counts those of workers that were heard of lately."""

    pools: list[PoolView]


@routes.post("/api/worker/pool/register", WORKERS, status=201)
async def register_worker(call: Call, body: WorkerRequest) -> WorkerView:
    """Say that a worker is there."""
    scope = call.scope
    async with call.services.worker_database.transaction(scope) as connection:
        row = await connection.fetchrow(
            _REGISTER,
            scope.tenant_id,
            scope.organization_id,
            body.worker_id,
            body.pool,
            body.slots,
            orjson.dumps(body.labels).decode(),
        )
    return _view(row)


@routes.post("/api/worker/pool/heartbeat", WORKERS)
async def heartbeat_worker(call: Call, body: WorkerName) -> WorkerView:
    """Say that a worker is still there."""
    async with call.services.worker_database.transaction(call.scope) as connection:
        row = await connection.fetchrow(_HEARTBEAT, body.worker_id)
    if row is None:
        raise NotFound(f"no worker {body.worker_id} has registered", hint="POST /api/worker/pool/register first")
    return _view(row)


@routes.post("/api/worker/pool/deregister", WORKERS, status=204)
async def deregister_worker(call: Call, body: WorkerName) -> None:
    """Say that a worker has gone; one that is not known is no error."""
    async with call.services.worker_database.transaction(call.scope) as connection:
        await connection.execute("DELETE FROM noetl.worker WHERE worker_id = $1", body.worker_id)


@routes.get("/api/worker/pools", READERS)
async def list_pools(call: Call) -> PoolList:
    """List the workers by pool."""
    async with call.services.database.transaction(call.scope) as connection:
        rows = await connection.fetch(_LIST, QUIET_SECONDS)
    pools: dict[str, list[WorkerView]] = {}
    for row in rows:
        pools.setdefault(row["pool"], []).append(_view(row))
    return PoolList(
        pools=[
            PoolView(pool=name, slots=sum(one.slots for one in workers if one.alive), workers=workers)
            for name, workers in pools.items()
        ]
    )


def _view(row: Any) -> WorkerView:
    return WorkerView(**dict(row) | {"labels": orjson.loads(row["labels"])})
