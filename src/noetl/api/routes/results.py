"""Payloads by their locator, within the caller's organization and up to a bound."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from noetl.api.endpoint import ANYONE, Call, Routes
from noetl.api.problems import TooLarge
from noetl.api.wire import Body
from noetl.errors import InputError, NotFound
from noetl.model.payload_ref import PayloadRef, payload_uri

routes = Routes("result")

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REFERRING = """
SELECT payload_ref AS ref FROM noetl.event WHERE payload_sha256 = $1
UNION ALL SELECT fields_ref FROM noetl.event WHERE fields_sha256 = $1 LIMIT 1
"""


class RefQuery(Body, frozen=True, kw_only=True):
    """The locator of a payload: noetl://tenant/…/org/…/payloads/sha256/…"""

    ref: Annotated[str, Meta(min_length=1, max_length=2_000)]


@routes.get("/api/result/resolve", ANYONE, media_type="application/octet-stream")
async def resolve_result(call: Call, query: RefQuery) -> Any:
    """Return the bytes of a payload that an event of this organization refers to, under their own media type."""
    sha256 = query.ref.rpartition("/")[2]
    scope, most = call.scope, call.services.max_payload_bytes
    if not _DIGEST.fullmatch(sha256) or query.ref != payload_uri(scope.tenant_id, scope.organization_id, sha256):
        raise InputError(
            f"{query.ref[:200]!r} is not the locator of a payload of this organization",
            hint=payload_uri(scope.tenant_id, scope.organization_id, "<digest>"),
        )
    async with call.services.database.transaction(scope) as connection:
        found = await connection.fetchval(_REFERRING, sha256)
    if found is None:
        raise NotFound(f"no event refers to a payload {sha256}")
    ref = msgspec.json.decode(found, type=PayloadRef)
    if ref.bytes > most:
        raise TooLarge(f"the payload has {ref.bytes} bytes, and this server gives {most} at once")
    headers = {
        # What a user stored must never run as a page of this server.
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "attachment",
        "ETag": f'"{sha256}"',
    }
    return Response(await call.services.payloads.fetch(scope, ref), 200, headers, ref.media_type)
