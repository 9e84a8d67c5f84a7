"""Payloads by their locator, within the caller's organization and up to a bound."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from noetl.api.endpoint import ANYONE, Call, Routes
from noetl.api.problems import TooLarge
from noetl.api.wire import Body
from noetl.kernel.ledger.payload_references import payload_at
from noetl.model.payload_ref import PayloadRef

routes = Routes("result")


class RefQuery(Body, frozen=True, kw_only=True):
    """The locator of a payload: noetl://tenant/…/org/…/payloads/sha256/…"""

    ref: Annotated[str, Meta(min_length=1, max_length=2_000)]


@routes.get("/api/result/resolve", ANYONE, media_type="application/octet-stream")
async def resolve_result(call: Call, query: RefQuery) -> Any:
    """Return the bytes of a payload that an event of this organization refers to, under their own media type."""
    scope, most = call.scope, call.services.max_payload_bytes
    ref = await payload_at(call.services.database, scope, query.ref)
    if ref.bytes > most:
        raise TooLarge(f"the payload has {ref.bytes} bytes, and this server gives {most} at once")
    headers = {
        # What a user stored must never run as a page of this server.
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "attachment",
        "ETag": f'"{ref.sha256}"',
    }
    return Response(await call.services.payloads.fetch(scope, ref), 200, headers, ref.media_type)


@routes.get("/api/result/reference", ANYONE)
async def get_reference(call: Call, query: RefQuery) -> PayloadRef:
    """Return the whole reference a locator stands for: size, type and digests of a payload that an event refers to."""
    return await payload_at(call.services.database, call.scope, query.ref)
