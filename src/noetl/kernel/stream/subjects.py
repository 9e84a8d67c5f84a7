"""The subjects of messages: `noetl_events`, a tenant, an execution and a shard go in, `noetl.events.acme.17.3` comes out.

Free text is escaped so that it is always one token without wildcards, and is read back as what it was.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from noetl.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)+")
_DURABLE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_EMPTY = "%"


@lru_cache(maxsize=64)
def root(stream: str) -> str:
    """Return the first tokens of a stream's subjects: the name, split at its last underscore."""
    if not _NAME.fullmatch(stream):
        raise InputError(
            f"{stream!r} cannot name a stream", hint="write it like noetl_events: letters, digits, - and _"
        )
    return ".".join(stream.rsplit("_", 1))


def all_of(stream: str) -> str:
    """Return the filter that takes all messages of a stream."""
    return f"{root(stream)}.*.*.*"


def of_shard(stream: str, shard: int) -> str:
    """Return the filter that takes the messages of one shard."""
    return f"{root(stream)}.*.*.{shard}"


def subject(stream: str, tenant_id: str, execution_id: int, shard: int) -> str:
    """Return the subject of a message."""
    return f"{root(stream)}.{escape(tenant_id)}.{execution_id}.{shard}"


def parts(text: str) -> tuple[str, int, int]:
    """Return tenant, execution and shard of a subject."""
    _, tenant, execution, shard = text.rsplit(".", 3)
    return unescape(tenant), int(execution), int(shard)


@lru_cache(maxsize=4096)
def escape(text: str) -> str:
    """Make one token of any text."""
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E") if text else _EMPTY


@lru_cache(maxsize=4096)
def unescape(token: str) -> str:
    """Read the text back that `escape` made a token of."""
    return "" if token == _EMPTY else unquote(token, errors="strict")


def checked_durable(name: str) -> str:
    """Return the name of a durable, or refuse it."""
    if not _DURABLE.fullmatch(name):
        raise InputError(f"{name!r} cannot name a durable", hint="use up to 128 letters, digits, - and _")
    return name
