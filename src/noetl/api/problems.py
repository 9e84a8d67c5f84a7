"""Errors become answers: RFC 9457 problem details with a stable code. Unexpected errors show an id, never their text."""

from __future__ import annotations

import logging
import uuid
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from noetl.api import wire
from noetl.errors import (
    Conflict,
    Corrupt,
    Denied,
    Erased,
    InputError,
    KeyReused,
    NoetlError,
    NotFound,
    PayloadCollected,
    ReportRefused,
    Unavailable,
    Unsupported,
)

_log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1


class Unauthenticated(Denied):
    """The request carries no token that is good."""

    code = "unauthenticated"


class TooLarge(InputError):
    """More bytes than this server takes or gives at once."""

    code = "too_large"


class TooMany(Unavailable):
    """More at once, or in a short time, than this server takes."""

    code = "too_many"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    hint: str | None = None
    id: str | None = None
    """Where to find an unexpected error in the server's log."""
    problems: list[str] = []
    """Every single problem, where there are several."""


_STATUS: tuple[tuple[type[NoetlError], int], ...] = (
    (Unauthenticated, 401),
    (TooLarge, 413),
    (TooMany, 429),
    (Denied, 403),
    (KeyReused, 422),
    (ReportRefused, 422),
    (NotFound, 404),
    (Conflict, 409),
    (InputError, 400),
    (Unavailable, 503),
    (PayloadCollected, 503),
    (Unsupported, 501),
    (Erased, 410),
    (Corrupt, 500),
)


def status_of(problem: NoetlError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(problem, kind)), 500)


def is_told(problem: NoetlError) -> bool:
    """Tell whether a caller is given the text of an error: of a defect only the id in the log is shown."""
    return any(isinstance(problem, kind) for kind, _ in _STATUS)


def described(problem: NoetlError) -> Problem:
    """Return an error as problem details."""
    several = problem.details.get("problems")
    return Problem(
        type=f"urn:noetl:problem:{problem.code}",
        title=(type(problem).__doc__ or problem.code).strip().splitlines()[0],
        status=status_of(problem),
        code=problem.code,
        detail=problem.message,
        hint=problem.hint,
        problems=[str(one) for one in several] if isinstance(several, list | tuple) else [],
    )


def refused(problem: NoetlError) -> Response:
    """Answer with an error that was raised on purpose."""
    found = described(problem)
    headers = {}
    if found.status == 500:
        _log.error("%s", problem.message)
    if found.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="noetl"'
    if found.status in (429, 503):
        headers["Retry-After"] = str(problem.details.get("retry_after", RETRY_SECONDS))
    return _response(found, headers)


def unexpected(method: str, route: str) -> Response:
    """Log the exception being handled and answer with the id under which it stands there."""
    number = uuid.uuid4().hex
    _log.exception("error %s in %s %s", number, method, route)
    return _response(
        Problem(
            type="urn:noetl:problem:internal",
            title="Something unexpected went wrong.",
            status=500,
            code="internal",
            detail=f"the server's log tells more under {number}",
            id=number,
        ),
        {},
    )


def plain_status(status: int, asked: str, headers: dict[str, str]) -> Response:
    """Answer with a status of HTTP itself, such as an unknown address or method; `asked` is both."""
    phrase = HTTPStatus(status).phrase
    code = phrase.lower().replace(" ", "_")
    kind = f"urn:noetl:problem:{code}"
    if status not in (404, 405):
        return _response(Problem(type=kind, title=phrase, status=status, code=code), headers)
    detail, hint = f"there is no route {asked[:200]}", "GET /api/openapi.json describes those there are"
    return _response(Problem(type=kind, title=phrase, status=status, code=code, detail=detail, hint=hint), headers)


def _response(problem: Problem, headers: dict[str, Any]) -> Response:
    return Response(wire.encode(_given(problem)), problem.status, headers, MEDIA_TYPE)


def _given(problem: Problem) -> Any:
    return msgspec.to_builtins(problem)
