"""Refusals of reports: the field, the value that was sent and what the grant allows go in, one sentence comes out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

import orjson

from noetl.errors import ReportRefused

SHOWN_CHARACTERS: Final = 80
LONGEST_NAME: Final = 1_024
MOST: Final = 2**31 - 1
"""The largest count that any report may hold."""


def refuse(field: str, value: object, granted: str) -> NoReturn:
    """Refuse a report: `field` has a value that contradicts what was `granted`."""
    raise ReportRefused(
        f"{field} is {shown(value)}, and {granted}",
        hint="nothing of this report was recorded",
        field=field,
    )


def shown(value: object) -> str:
    """Return a value as a refusal quotes it: short, whatever was sent."""
    text = repr(value[: SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def count(field: str, value: object, granted: str, *, least: int = 0, most: int = MOST) -> int:
    """Return a count, or refuse what is no whole number within its bounds."""
    if type(value) is not int or not least <= value <= most:
        refuse(field, value, granted)
    return value


def name(field: str, value: object, granted: str = "a name has 1 to 1024 characters and no NUL") -> str:
    """Return a name, or refuse what is none."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or "\x00" in value:
        refuse(field, value, granted)
    return value


def one_of(field: str, value: object, known: Collection[str], granted: str) -> None:
    """Refuse a word that is not among those known."""
    if value not in known:
        refuse(field, value, granted)


def named(field: str, value: object, granted: str = "it has to be an object with named fields") -> Mapping[str, Any]:
    """Return an object with named fields, or refuse what is none."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        refuse(field, value, granted)
    return value


def by_worker(worker: str, granted_to: str) -> None:
    """Refuse a report under another name than the lease was granted to."""
    if granted_to and worker != granted_to:
        refuse("worker_id", worker, f"the lease was granted to {shown(granted_to)}")


def json_bytes(value: object) -> int:
    """Return how many bytes a value takes as JSON."""
    return len(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
