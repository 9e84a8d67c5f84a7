"""Whether the server works, its metrics, and the description of this API."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from noetl.api.endpoint import ANYONE, Answer, Call, Routes
from noetl.api.wire import View
from noetl.errors import NoetlError

routes = Routes("health")


class Health(View, frozen=True, kw_only=True):
    """Whether the server works; `database` and `schema_revision` are looked at by /api/health alone."""

    status: str
    version: str
    database: str | None = None
    schema_revision: str | None = None


@routes.get("/health", None)
async def get_liveness(call: Call) -> Health:
    """Tell that the process answers; nothing else is looked at."""
    return Health(status="ok", version=call.services.version)


@routes.get("/api/health", None)
async def get_health(call: Call) -> Answer | Health:
    """Tell whether the database can be reached, and which schema it has; 503 when it cannot."""
    version = call.services.version
    try:
        async with call.services.database.transaction(None) as connection:
            revision = str(await connection.fetchval("SELECT version_num FROM public.schema_revision"))
    except NoetlError as problem:
        return Answer(Health(status="unavailable", version=version, database=problem.code), 503, {"Retry-After": "1"})
    return Health(status="ok", version=version, database="ok", schema_revision=revision)


@routes.get("/metrics", ANYONE, media_type="text/plain")
async def get_metrics(call: Call) -> Any:
    """Return the metrics of this process in Prometheus' text format."""
    text, media_type = await call.services.metrics.exposition()
    return Response(text, 200, media_type=media_type)


@routes.get("/api/openapi.json", None)
async def get_openapi(call: Call) -> Any:
    """Return the description of this API."""
    return Response(call.request.app.state.openapi, 200, media_type="application/json")
