"""Turns what the Snowflake connector raises into a problem a policy can decide on."""

from __future__ import annotations

import re
from typing import Any, Final

from noetl.engine.tools.outcome import Problem, ProblemKind, refusal
from noetl.errors import NoetlError

_PREFIX: Final = re.compile(r"^\d+ \(\w+\):\s*(?:[0-9a-f-]{36}:\s*)?")
_BY_NUMBER: Final[dict[int, tuple[ProblemKind, bool]]] = {
    604: ("db_timeout", True),  # somebody, or a time limit, cancelled the statement
    630: ("db_timeout", True),
    625: ("db_deadlock", True),
    100072: ("db_constraint", False),
    3001: ("auth", False),
    100038: ("transform", False),
    100040: ("transform", False),
    250001: ("db_connection", True),
    250003: ("db_connection", True),
    251001: ("schema", False),
    390100: ("auth", False),
    390144: ("auth", False),
    390318: ("auth", False),
}
_BY_CLASS: Final[dict[str, tuple[ProblemKind, bool]]] = {
    "02": ("schema", False),
    "08": ("db_connection", True),
    "0A": ("schema", False),
    "22": ("transform", False),
    "23": ("db_constraint", False),
    "28": ("auth", False),
    "40": ("db_deadlock", True),
    "42": ("schema", False),
    "57": ("db_timeout", True),
    "XX": ("server_error", True),
}
_BY_NAME: Final[dict[str, tuple[ProblemKind, bool]]] = {
    "ForbiddenError": ("auth", False),
    "TooManyRequests": ("rate_limit", True),
    "InternalServerError": ("server_error", True),
    "ServiceUnavailableError": ("db_connection", True),
    "BadGatewayError": ("db_connection", True),
    "GatewayTimeoutError": ("db_connection", True),
    "RequestTimeoutError": ("db_connection", True),
    "OperationalError": ("db_connection", True),
    "IntegrityError": ("db_constraint", False),
    "DataError": ("transform", False),
    "ProgrammingError": ("schema", False),
    "NotSupportedError": ("schema", False),
}


class BadTarget(NoetlError):
    """The credential does not say how to log in."""

    code = "credential_invalid"


class BadCommand(NoetlError):
    """The task's command cannot be run."""

    code = "command_invalid"


def problem_of(error: BaseException, place: str, source: str = "snowflake") -> Problem:
    """Return the problem an error of the connector, the network or the task's own options stands for."""
    name = type(error).__name__
    if isinstance(error, BadCommand):
        return Problem(kind="schema", message=error.message, code=error.code, source=source)
    if isinstance(error, BadTarget):
        return Problem(kind="auth", message=error.message, code=error.code, source=source)
    if isinstance(error, NoetlError):
        problem = refusal(error, source).error
        assert problem is not None
        return problem
    if isinstance(error, TimeoutError):
        message = f"{place} did not finish in time"
        return Problem(kind="db_timeout", message=message, retryable=True, source=source, exception_type=name)
    if is_of_connector(error):
        return _of_server(error, place, source)
    if isinstance(error, OSError):
        message = f"{place} does not answer: {error.strerror or name}"
        return Problem(kind="db_connection", message=message, retryable=True, source=source, exception_type=name)
    if isinstance(error, ValueError | OverflowError):
        message = f"a value cannot be read or written: {error}"
        return Problem(kind="transform", message=message, source=source, exception_type=name)
    raise error


def is_of_connector(error: BaseException) -> bool:
    """Say whether an error is one of the connector's own, which is not imported for that."""
    return any(each.__module__.startswith("snowflake.connector") for each in type(error).__mro__)


def _of_server(error: Any, place: str, source: str) -> Problem:
    number = int(error.errno) if str(getattr(error, "errno", None) or "").lstrip("-").isdigit() else None
    state = str(getattr(error, "sqlstate", None) or "")
    name = type(error).__name__
    said = _PREFIX.sub("", str(getattr(error, "raw_msg", None) or getattr(error, "msg", None) or name))
    kind, retryable = (
        (number is not None and _BY_NUMBER.get(number))
        or _BY_CLASS.get(state[:2])
        or _BY_NAME.get(name)
        or ("unknown", False)
    )
    query = getattr(error, "sfqid", None)
    return Problem(
        kind=kind,
        message=f"{place}: {said}" if kind == "db_connection" else said,
        retryable=retryable,
        code=state or (None if number is None else str(number)),
        source=source,
        exception_type=name,
        details={key: value for key, value in (("errno", number), ("query_id", query)) if value is not None},
    )
