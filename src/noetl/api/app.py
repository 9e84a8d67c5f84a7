"""The ASGI application: declared routes go in, a Starlette application comes out."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from noetl.api import problems, wire
from noetl.api.access.admission import KEEP_SECONDS, Admission
from noetl.api.access.local_callers import LocalCallers
from noetl.api.access.refused_tokens import RefusedTokens
from noetl.api.endpoint import READ_TOKEN, Answer, Call, Endpoint
from noetl.api.openapi import document
from noetl.api.routes import all_routes
from noetl.api.services import Services
from noetl.errors import InputError, NoetlError
from noetl.kernel.ledger.after_commit import after_commit
from noetl.model.ids import parse_id
from noetl.model.mark import parse_read_token


def make_app(services: Services) -> Starlette:
    """Make the application of one server."""
    admission = Admission(
        services.tokens,
        required=services.auth_required,
        default_scope=services.default_scope,
        worker_secret=services.worker_secret,
        local=LocalCallers(services.local_token),
        refused=RefusedTokens(services.metrics.token_refused),
    )
    endpoints = all_routes.endpoints()
    services = replace(services, openapi=wire.encode(document(endpoints, services.version)))
    return Starlette(
        routes=[
            Route(one.path, _handler(one, services, admission), methods=[one.method], name=one.name)
            for one in endpoints
        ],
        exception_handlers={HTTPException: _plain},
    )


def _unheeded(endpoint: Endpoint) -> InputError:
    """Say that a key would not keep the request from being done twice."""
    return InputError(
        f"{endpoint.method} {endpoint.template} heeds no Idempotency-Key: sent again, it would be done again",
        hint="leave the header out, and when an answer got lost look what was done before you send it again",
    )


async def _covered(call: Call) -> None:
    """Wait until a read sees what the caller wrote before, as its token says."""
    token = parse_read_token(call.request.headers[READ_TOKEN])
    await call.services.ledger.covered(token, call.scope, call.services.read_token_seconds)


def _handler(endpoint: Endpoint, services: Services, admission: Admission) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        began = time.perf_counter()
        try:
            caller = await admission.caller(request, endpoint)
            call = Call(services, caller, request, partial(admission.again, request, endpoint, caller))
            if endpoint.refuses_key and "idempotency-key" in request.headers:
                raise _unheeded(endpoint)
            if endpoint.method == "GET" and READ_TOKEN in request.headers:
                await _covered(call)
            answer = await endpoint.handle(call, **await _arguments(endpoint, call))
            if endpoint.waits and time.perf_counter() - began > KEEP_SECONDS:
                await call.still_admitted()
            response = _response(endpoint, answer)
        except NoetlError as problem:
            known = problems.is_told(problem)
            response = problems.refused(problem) if known else problems.unexpected(endpoint.method, endpoint.template)
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception:
            response = problems.unexpected(endpoint.method, endpoint.template)
        seconds = time.perf_counter() - began
        counted = (endpoint.method, endpoint.template, response.status_code, seconds)
        after_commit("counting a request", services.metrics.http_request, *counted)
        return response

    return handle


async def _arguments(endpoint: Endpoint, call: Call) -> dict[str, Any]:
    found = {name: _parameter(name, kind, call.request.path_params[name]) for name, kind in endpoint.parameters.items()}
    given = dict(call.request.query_params)
    if endpoint.query is not None:
        found["query"] = wire.convert(endpoint.query, given, "the query")
    elif given:
        raise InputError(f"{endpoint.template} takes no query, and was given {', '.join(sorted(given))}")
    if endpoint.body is not None:
        data = await _body(call)
        if data or not endpoint.body_optional:
            found["body"] = wire.decode(endpoint.body, data)
    elif not endpoint.reads_body:
        # Nobody looks at it, but the request is not whole without it.
        async for _ in call.request.stream():
            pass
    return found


def _parameter(name: str, kind: type, text: str) -> Any:
    if kind is int:
        return parse_id(text)
    if kind is UUID:
        try:
            return UUID(text)
        except ValueError:
            raise InputError(f"{name} {text[:40]!r} is not a UUID") from None
    return wire.no_nul(text, name)


async def _body(call: Call) -> bytes:
    """Read the body; only JSON is taken, which a page of another site cannot make a browser send unasked."""
    most = call.services.limits.body_bytes
    pieces: list[bytes] = []
    size = 0
    async for piece in call.request.stream():
        size += len(piece)
        if size > most:
            raise problems.TooLarge(f"the body is larger than {most} bytes", hint="store it as a payload first")
        pieces.append(piece)
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if size and kind != "application/json":
        raise InputError(f"the body's media type is {kind[:80] or 'missing'}, and application/json is asked for")
    return b"".join(pieces)


def _response(endpoint: Endpoint, value: Any) -> Response:
    if isinstance(value, Response):
        return value
    answer = value if isinstance(value, Answer) else Answer(value, endpoint.status)
    headers = {"Cache-Control": "no-store", **answer.headers}
    if answer.value is None:
        return Response(status_code=204, headers=headers)
    return Response(wire.encode(answer.value, endpoint.answer), answer.status, headers, "application/json")


def _plain(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    asked = f"{request.method} {request.url.path}"
    return problems.plain_status(problem.status_code, asked, dict(problem.headers or {}))
