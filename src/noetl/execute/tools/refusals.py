"""Errors of NoETL's own put as outcomes: an error goes in, a problem in words a policy can decide on comes out."""

from __future__ import annotations

from noetl.errors import Denied, InputError, NoetlError, NotFound, Unavailable, Unsupported
from noetl.execute.outcome import Outcome, ProblemKind, failed

_KINDS: tuple[tuple[type[NoetlError], ProblemKind], ...] = (
    (NotFound, "not_found"),
    (Denied, "auth"),
    (InputError, "schema"),
    (Unsupported, "schema"),
    (Unavailable, "connection"),
)


def refusal(error: NoetlError, source: str) -> Outcome:
    """Return the outcome an error of NoETL's own stands for."""
    kind = next((kind for known, kind in _KINDS if isinstance(error, known)), "unknown")
    retryable = error.disposition == "transient"
    return failed(kind, error.message, source=source, code=error.code, retryable=retryable)  # type: ignore[arg-type]
