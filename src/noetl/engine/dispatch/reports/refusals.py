"""Refuses reports: the field, its value and what the grant allows go in, one sentence comes out. Errors are bounded."""

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


MESSAGE_CHARACTERS: Final = 16_000
DETAILS_BYTES: Final = 16_384
"""Of a row's problem, as JSON; what is longer is left out of the event."""
MOST_LISTED: Final = 100
"""Failed rows that one report may list."""
_WORDS: Final = ("kind", "code", "source", "exception_type")


def shortened(text: str, most: int = MESSAGE_CHARACTERS) -> str:
    """Return a text that fits an event: its beginning and its end."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n… shortened …\n{text[-half:]}"


def bounded(field: str, error: Mapping[str, Any], *, details_bytes: int | None = DETAILS_BYTES) -> dict[str, Any]:
    """Return an error whose texts are bounded; one whose fields are of the wrong kind is refused."""
    named(field, error)
    message = error.get("message")
    if message is not None and not isinstance(message, str):
        refuse(f"{field}.message", message, "a message is text")
    if not isinstance(error.get("retryable", False), bool):
        refuse(f"{field}.retryable", error["retryable"], "it is true or false")
    for word in _WORDS:
        if error.get(word) is not None:
            name(f"{field}.{word}", error[word], "it is a word of at most 1024 characters")
    told = dict(error)
    if message is not None:
        told["message"] = shortened(message.replace("\x00", ""))
    if details_bytes is not None and json_bytes({**told, "message": None}) > details_bytes:
        told = {key: told[key] for key in ("index", "message", "retryable", *_WORDS) if key in told}
        told["details"] = {"shortened": True}
    return told


def bounded_rows(errors: object, first_index: int, row_count: int, failed_count: int) -> list[dict[str, Any]]:
    """Return the listed problems of a frame's rows; each is of a row of that frame, and there are no more than failed."""
    if not isinstance(errors, list) or len(errors) > min(failed_count, MOST_LISTED):
        listed = len(errors) if isinstance(errors, list) else errors
        refuse("report.errors", listed, f"{failed_count} rows failed, of which {MOST_LISTED} at most are listed")
    found = []
    for number, error in enumerate(errors):
        field = f"report.errors[{number}]"
        last = first_index + row_count - 1
        if "index" in named(field, error):
            count(
                f"{field}.index", error["index"], f"the rows worked off are {first_index} to {last}",
                least=first_index, most=last,
            )  # fmt: skip
        found.append(bounded(field, error, details_bytes=DETAILS_BYTES // max(1, len(errors))))
    return found
