"""Whether the server works, its metrics, and the description of this API."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from noetl.api.endpoint import ANYONE, READERS, Answer, Call, Routes
from noetl.api.wire import View
from noetl.errors import NoetlError

routes = Routes("health")


class Health(View, frozen=True, kw_only=True):
    """Whether the server works; all but `status` and `version` are looked at by /api/health alone."""

    status: str
    version: str
    database: str | None = None
    schema_revision: str | None = None
    write_path: str | None = None
    """How events reach the ledger: `ledger`, `stream`, or `draining` while that is being changed and writes wait."""
    lost_facts: int | None = None
    """How many facts the stream acknowledged and lost, as all nodes recorded; `noetl stream lost` lists them."""
    reason: str | None = None
    """What keeps the server from working though the database answers."""


@routes.get("/health", None)
async def get_liveness(call: Call) -> Health:
    """Tell that the process answers; nothing else is looked at."""
    return Health(status="ok", version=call.services.version)


@routes.get("/api/health", None)
async def get_health(call: Call) -> Answer | Health:
    """Tell whether the server can write: database, schema and the way of events; 503 when it cannot."""
    version = call.services.version
    try:
        async with call.services.database.transaction(None) as connection:
            revision = str(await connection.fetchval("SELECT version_num FROM public.schema_revision"))
            way = str(await connection.fetchval("SELECT mode FROM noetl.write_path"))
    except NoetlError as problem:
        return Answer(Health(status="unavailable", version=version, database=problem.code), 503, {"Retry-After": "1"})
    reason = call.services.no_stream if way == "stream" else None
    health = Health(
        status="ok" if reason is None else "unavailable",
        version=version,
        database="ok",
        schema_revision=revision,
        write_path=way,
        lost_facts=call.services.lost_facts(),
        reason=reason,
    )
    return health if reason is None else Answer(health, 503, {"Retry-After": "1"})


class ConnectionPool(View, frozen=True, kw_only=True):
    """Connections of this process to the database that serve one purpose."""

    name: str
    in_use: int
    most: int


class PoolStatus(View, frozen=True, kw_only=True):
    """The pools of this process: `readers` answer people, `workers` serve workers."""

    pools: list[ConnectionPool]


@routes.get("/api/pool/status", READERS)
async def get_pool_status(call: Call) -> PoolStatus:
    """Return how many connections to the database this process uses now, and how many it may use."""
    known = {"readers": call.services.database, "workers": call.services.worker_database}
    return PoolStatus(
        pools=[ConnectionPool(name=name, in_use=one.in_use(), most=one.most()) for name, one in known.items()]
    )


@routes.get("/metrics", ANYONE, media_type="text/plain")
async def get_metrics(call: Call) -> Any:
    """Return the metrics of this process in Prometheus' text format."""
    text, media_type = await call.services.metrics.exposition()
    return Response(text, 200, media_type=media_type)


@routes.get("/api/openapi.json", None)
async def get_openapi(call: Call) -> Any:
    """Return the description of this API."""
    return Response(call.services.openapi, 200, media_type="application/json")
