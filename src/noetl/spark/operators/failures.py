"""Whatever an attempt can fail with goes in, one short message with its kind and whether to try again comes out."""

from __future__ import annotations

import re
import traceback
from typing import Final

import msgspec

from noetl.errors import Damaged, NoetlError
from noetl.spark.drivers.ongoing_work import Interrupted, interrupted
from noetl.spark.drivers.protocol import Work, WorkResult
from noetl.spark.lake.integrity.read_errors import damage_told

_PASSING: Final = (
    "executor lost",
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailed",
    "slave lost",
    "Worker lost",
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "Connection reset",
    "Connection refused",
    "Broken pipe",
    "No space left on device",
    "SparkContext was shut down",
    "stopped SparkContext",
    "TimeoutException",
    "GenericError",
)
_CANCELLED: Final = ("SPARK_JOB_CANCELLED", "cancelled job tags", "OPERATION_CANCELED", "Interrupted")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(.+)")
_USER_ERROR: Final = re.compile(r"^(\w[\w.]*(?:Error|Exception|Warning|Exit|Interrupt)\b.*)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by: |: )[\w.$]+?([A-Z]\w*(?:Exception|Error): .+)$", re.MULTILINE)
_LONGEST: Final = 600


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt failed."""

    kind: str
    message: str
    retryable: bool
    interrupted: bool = False


def failure_of(error: BaseException) -> Failure:
    """Say in one short message why an attempt failed, and whether another attempt may fare better."""
    if isinstance(error, Interrupted):
        return Failure("interrupted", "interrupted", retryable=True, interrupted=True)
    if isinstance(error, NoetlError):
        return Failure(error.code, error.message, retryable=error.disposition == "transient")
    text = str(error)
    damage = damage_told(error)
    if damage is not None:
        return Failure(Damaged.code, _shortened(damage), retryable=False)
    if any(mark in text for mark in _CANCELLED) and _is_sparks(error):
        return Failure("interrupted", "interrupted", retryable=True, interrupted=True)
    if not _is_sparks(error):
        kind = type(error).__name__
        passing = isinstance(error, ConnectionError | TimeoutError)
        return Failure(kind, _shortened(f"{kind}: {text or 'no message'}{_place(error)}"), retryable=passing)
    return _sparks(error, text)


def failed(work: Work, error: BaseException) -> WorkResult:
    """Return the result of an attempt that failed."""
    failure = failure_of(error)
    grant = work.grant
    stopped = failure.interrupted or interrupted(work.tag)
    message = "interrupted" if stopped else failure.message
    return WorkResult(
        task_id=grant.lease.task_id,
        attempt=grant.lease.attempt,
        status="interrupted" if stopped else "error",
        error=f"dag {grant.dag!r}, job {grant.job!r}, partition {grant.partition_key!r}: {message}",
        error_kind=failure.kind,
        retryable=failure.retryable,
        log="" if stopped or isinstance(error, NoetlError) else "".join(traceback.format_exception(error)),
    )


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _sparks(error: BaseException, text: str) -> Failure:
    passing = any(mark in text for mark in _PASSING)
    kind = type(error).__name__
    if "Traceback (most recent call last)" in text:
        told = _USER_ERROR.findall(text)
        return Failure(
            kind, _shortened(f"user code in an executor failed: {told[-1] if told else text}"), retryable=passing
        )
    found = list(_CONDITION.finditer(text))
    # The last condition is the cause: the ones before it only say that a job or a file write failed.
    best = next((one for one in reversed(found) if "TASK_WRITE_FAILED" not in one[1]), None)
    if best is None:
        causes = _CAUSE.findall(text)
        cause = causes[-1] if causes else f"{kind}: {text.splitlines()[0] if text else 'no message'}"
        return Failure(kind, _shortened(cause), retryable=passing)
    sentence = best[2].split(" SQLSTATE:")[0].strip()
    return Failure(best[1].lower(), _shortened(sentence + _line(text)), retryable=passing)


def _line(text: str) -> str:
    where = re.search(r"line (\d+),? pos(?:ition)? (\d+)", text)
    return f" (line {where[1]}, column {int(where[2]) + 1})" if where else ""


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "/noetl/" not in one.filename and "site-packages" not in one.filename]
    return f" ({own[-1].filename.rsplit('/', 1)[-1]}, line {own[-1].lineno})" if own else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
