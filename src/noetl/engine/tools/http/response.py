"""Reads responses: the body as JSON, text or base64, when to retry, and bad answers as problems without credentials."""

from __future__ import annotations

import base64
import datetime as dt
import re
import ssl
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from yarl import URL

from noetl.engine.tools.http.connection import TooLarge
from noetl.engine.tools.json_text import read_json
from noetl.engine.tools.outcome import Problem, ProblemKind
from noetl.errors import NoetlError

_TEXT_TYPES = re.compile(r"text/|.*[/+](xml|javascript|ecmascript|yaml|x-yaml|x-www-form-urlencoded|x-ndjson|graphql)$")
_CHARSET = re.compile(r"charset=\"?([\w.:-]+)", re.IGNORECASE)
_MAYBE_JSON = frozenset({"", "text/plain"})


def decode(body: bytes, content_type: str) -> Any:
    """Return JSON as its values, text as text and anything else as base64 with its media type."""
    if not body:
        return None
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith(("/json", "+json")) or (media_type in _MAYBE_JSON and body.lstrip()[:1] in (b"{", b"[")):
        try:
            return read_json(body)
        except ValueError:
            pass
    charset = _CHARSET.search(content_type)
    if charset or not media_type or media_type.endswith(("/json", "+json")) or _TEXT_TYPES.match(media_type):
        try:
            return body.decode(charset[1] if charset else "utf-8")
        except (UnicodeDecodeError, LookupError):
            if media_type.startswith("text/"):
                return body.decode("utf-8", "replace")
    return {"base64": base64.b64encode(body).decode(), "media_type": media_type or "application/octet-stream"}


def retry_after(headers: dict[str, str]) -> float | None:
    """Return in how many seconds the server wants to be asked again, if it says so."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - dt.datetime.now(dt.UTC)).total_seconds())


_BY_STATUS: dict[int, tuple[ProblemKind, bool]] = {
    401: ("auth", False),
    403: ("auth", False),
    404: ("not_found", False),
    407: ("auth", False),
    408: ("timeout", True),
    410: ("not_found", False),
    425: ("client_error", True),
    429: ("rate_limit", True),
}
_SECRET_NAME = re.compile(
    r"(^|[-_.])(\w*token|\w*key|\w*secret|password|passwd|\w*signature|sig|auth|credential)s?$", re.I
)

_MAYBE_SECRET = re.compile(r"token|key|secret|passw|sig|auth|credential|%", re.I)
"""Found in every query that has a name of a credential, be it quoted."""


def place(method: str, url: URL) -> str:
    """Return how messages call a request."""
    return f"{method} {url.with_user(None).with_query(None).with_fragment(None)}"


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Say whether the name of a header or parameter is that of a credential."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(url: URL, secret: Collection[str]) -> str:
    """Return an address as results show it: no user, and stars for query values that are credentials."""
    if url.raw_user is None and not secret and _MAYBE_SECRET.search(url.raw_query_string) is None:
        return str(url)
    if url.raw_user is not None:
        url = url.with_user(None)
    hidden = [name for name in url.query if name in secret or is_secret(name)]
    if not hidden:
        return str(url)
    pairs = [(name, "***" if name in hidden else value) for name, value in url.query.items()]
    return str(url.with_query(pairs))


def problem_of_status(status: int, reason: str, where: str, headers: dict[str, str]) -> Problem:
    """Return the problem that a status of 400 or more is."""
    default: tuple[ProblemKind, bool] = ("server_error", True) if status >= 500 else ("client_error", False)
    kind, retryable = _BY_STATUS.get(status, default)
    return Problem(
        kind=kind,
        message=f"{where} answered {status} {reason}".rstrip(),
        retryable=retryable,
        code=f"http_{status}",
        source="http",
        http_status=status,
        retry_after=retry_after(headers),
    )


def problem_of_error(error: Exception, where: str, seconds: float) -> Problem:
    """Return the problem an error of the client, the network or the task's own options stands for."""
    fields: dict[str, Any] = {"source": "http", "exception_type": type(error).__name__}
    if isinstance(error, TooLarge):
        message = f"{where} answered with more than a task may take; ask for less or store it elsewhere"
        return Problem(kind="storage_quota", message=message, code="response_too_large", **fields)
    if isinstance(error, TimeoutError):
        return Problem(kind="timeout", message=f"{where} did not answer within {seconds:g} s", retryable=True, **fields)
    if isinstance(error, ssl.SSLError):
        return Problem(kind="connection", message=f"{where}: the TLS connection is refused: {_said(error)}", **fields)
    if isinstance(error, ValueError):
        message = f"{where}: the address, a header or a value cannot be sent"
        return Problem(kind="client_error", message=message, code="request_invalid", **fields)
    if isinstance(error, OSError):
        message = f"{where} failed: {_said(error)}"
        return Problem(kind="connection", message=message, retryable=True, **fields)
    if isinstance(error, NoetlError):
        transient = error.disposition == "transient"
        bad: ProblemKind = "client_error" if error.code == "request_invalid" else "auth"
        kind: ProblemKind = "connection" if transient else bad
        return Problem(kind=kind, message=error.message, retryable=transient, code=error.code, **fields)
    raise error


def _said(error: OSError) -> str:
    """Return the operating system's or the certificate's words."""
    words = getattr(error, "verify_message", None) or error.strerror or getattr(error, "reason", None)
    return str(words or type(error).__name__)
