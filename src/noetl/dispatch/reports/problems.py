"""Errors in reports: what a worker says of a failure goes in, the same with bounded texts comes out, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl.dispatch.reports.refusing import count, json_bytes, name, named, refuse

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
