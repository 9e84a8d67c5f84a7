"""Reads responses: the body as JSON, text or base64, and what the headers say about trying again."""

from __future__ import annotations

import base64
import datetime as dt
import re
from email.utils import parsedate_to_datetime
from typing import Any

from noetl.execute.tools.json_text import read_json

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
