"""The options of the data source: texts go in, checked values come out, all mistakes at once.

A misspelt option is refused, since the rows it was meant to leave out would be read without a word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from noetl.errors import InputError, NoetlError
from noetl.model.event import parse_time
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.spark.source.payload_store import store_url

URL_VARIABLE: Final = "NOETL_DATABASE_URL"
PARTITION_EVENTS: Final = 50_000
BATCH_EVENTS: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What to read. Without a scope it is every tenant, which only the projector's role may see."""

    url: str = field(repr=False)
    as_roles: bool = False
    scope: Scope | None = None
    execution: int | None = None
    types: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    after: Mark | None = None
    upto: Mark | None = None
    shards: tuple[int, ...] = tuple(range(SHARD_COUNT))
    partition_events: int = PARTITION_EVENTS
    batch_events: int = BATCH_EVENTS
    push_filters: bool = False
    """Whether filters of the query are PostgreSQL's to answer: safe only for a frame that is filtered in one way."""
    upcasters: tuple[str, ...] = ()
    payloads_url: str | None = field(default=None, repr=False)

    @property
    def role(self) -> str:
        """The database role that reads."""
        return "noetl_projector" if self.scope is None else "noetl_runtime"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read options as Spark hands them over; names are compared without regard to case."""
        texts = {name.lower(): text for name, text in given.items()}
        problems: list[str] = []
        unknown = sorted(texts.keys() - _READERS.keys() - _SCOPE)
        if unknown:
            problems.append(f"{', '.join(unknown)}: no such option; there are {', '.join(sorted(KNOWN))}")
        values: dict[str, Any] = {}
        for name, read in _READERS.items():
            if texts.get(name, "") == "":
                continue
            try:
                values[name] = read(texts[name])
            except (ValueError, NoetlError) as problem:
                problems.append(f"{name}: {problem}")
        url = values.pop("url", None) or os.environ.get(URL_VARIABLE, "")
        if not url:
            problems.append(f"url: it is missing; set it, or {URL_VARIABLE} in the environment of the driver")
        scope = _scope(texts, problems)
        if problems:
            raise InputError(f"the options of the noetl source do not add up: {'; '.join(problems)}")
        return cls(url=url, scope=scope, **values)


def source_options(scope: Scope | None, reach: Mapping[str, Any], **more: str) -> dict[str, str]:
    """Return the options for reading one organization, or every tenant where scope is None, over a reach."""
    options = {
        "url": str(reach["database_url"]),
        "as_roles": _flag_text(reach.get("as_roles", False)),
        "upcasters": ",".join(reach.get("upcasters", ())),
        "payloads_url": reach.get("payloads_url") or (store_url(reach["settings"]) if "settings" in reach else ""),
    }
    if scope is None:
        options["every_tenant"] = "true"
    else:
        options |= {"tenant": scope.tenant_id, "organization": scope.organization_id}
    return options | more


def _scope(texts: Mapping[str, str], problems: list[str]) -> Scope | None:
    tenant, organization = texts.get("tenant", ""), texts.get("organization", "")
    try:
        every_tenant = _flag(texts.get("every_tenant", "") or "false")
    except ValueError as problem:
        problems.append(f"every_tenant: {problem}")
        return None
    if every_tenant:
        if tenant or organization:
            problems.append("every_tenant: with it, neither tenant nor organization may be given")
        return None
    missing = [name for name, text in (("tenant", tenant), ("organization", organization)) if not text]
    if missing:
        problems.append(
            f"{' and '.join(missing)}: missing; set both, or every_tenant=true where the login may read them all"
        )
        return None
    return Scope(tenant, organization)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _flag_text(value: object) -> str:
    return "true" if value else "false"


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= 100_000_000:
        raise ValueError(f"{text!r} is no number between 1 and 100000000")
    return number


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 63:
        raise ValueError(f"{text!r} is no id of an execution")
    return int(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _shards(text: str) -> tuple[int, ...]:
    found = sorted({int(part) for part in _list(text)})
    if not found or found[0] < 0 or found[-1] >= SHARD_COUNT:
        raise ValueError(f"{text!r} is no list of shards between 0 and {SHARD_COUNT - 1}")
    return tuple(found)


_READERS: Final[dict[str, Any]] = {
    "url": str,
    "as_roles": _flag,
    "execution": _id,
    "types": _list,
    "since": parse_time,
    "until": parse_time,
    "after": Mark.parse,
    "upto": Mark.parse,
    "shards": _shards,
    "partition_events": _count,
    "batch_events": _count,
    "push_filters": _flag,
    "upcasters": _list,
    "payloads_url": str,
}
_SCOPE: Final = {"tenant", "organization", "every_tenant"}
KNOWN: Final = _READERS.keys() | _SCOPE
"""The names of all options."""
