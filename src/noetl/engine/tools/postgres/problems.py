"""Turns what the PostgreSQL driver raises into a problem a policy can decide on. Messages never hold a password."""

from __future__ import annotations

from typing import Any

import asyncpg

from noetl.engine.tools.outcome import Problem, ProblemKind
from noetl.errors import NoetlError

SUCCESS = "00000"

_BY_CODE: dict[str, tuple[ProblemKind, bool]] = {
    "25006": ("db_connection", True),  # read-only: the primary has moved
    "25P03": ("db_timeout", True),
    "40001": ("db_deadlock", True),
    "40P01": ("db_deadlock", True),
    "42501": ("auth", False),
    "53300": ("db_connection", True),
    "55P03": ("db_timeout", True),
    "57014": ("db_timeout", True),
    "57P01": ("db_connection", True),
    "57P02": ("db_connection", True),
    "57P03": ("db_connection", True),
    "57P05": ("db_timeout", True),
    "22P02": ("parse", False),
}
_BY_CLASS: dict[str, tuple[ProblemKind, bool]] = {
    "08": ("db_connection", True),
    "0A": ("schema", False),
    "21": ("schema", False),
    "22": ("transform", False),
    "23": ("db_constraint", False),
    "26": ("schema", False),
    "28": ("auth", False),
    "3D": ("schema", False),
    "3F": ("schema", False),
    "40": ("db_deadlock", True),
    "42": ("schema", False),
    "44": ("db_constraint", False),
    "53": ("storage_quota", True),
    "54": ("schema", False),
    "55": ("db_deadlock", True),
    "58": ("storage_access", True),
    "XX": ("server_error", False),
}
_NOTES = ("detail", "hint", "constraint_name", "table_name", "column_name", "schema_name", "position", "context")


class BadTarget(NoetlError):
    """The credential does not say where the database is."""

    code = "credential_invalid"


class BadCommand(NoetlError):
    """The task's command cannot be run."""

    code = "command_invalid"


class ScriptUnread(NoetlError):
    """The script a task names cannot be had; `problem` says why and whether trying again may help."""

    code = "script_unread"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_of(error: BaseException, place: str, source: str = "postgres") -> Problem:
    """Return the problem an error of the driver, the network or the task's own options stands for."""
    name = type(error).__name__
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate:
        return _of_server(error, error.sqlstate, source)
    if isinstance(error, ScriptUnread):
        return error.problem
    if isinstance(error, BadCommand):
        return Problem(kind="schema", message=error.message, code=error.code, source=source)
    if isinstance(error, NoetlError):
        transient = error.disposition == "transient"
        kind: ProblemKind = "connection" if transient else "auth"
        return Problem(kind=kind, message=error.message, retryable=transient, code=error.code, source=source)
    if isinstance(error, TimeoutError):
        message = f"{place} did not finish in time"
        return Problem(kind="db_timeout", message=message, retryable=True, source=source, exception_type=name)
    if isinstance(error, asyncpg.DataError | ValueError | OverflowError):
        message = f"a value cannot be read or written: {error}"
        return Problem(kind="transform", message=message, source=source, exception_type=name)
    lost = OSError | asyncpg.InterfaceError | asyncpg.InternalClientError | asyncpg.PostgresError
    if isinstance(error, lost):
        reason = (error.strerror if isinstance(error, OSError) else str(error)) or name
        message = f"{place} does not answer: {reason}"
        return Problem(kind="db_connection", message=message, retryable=True, source=source, exception_type=name)
    raise error


def _of_server(error: asyncpg.PostgresError, code: str, source: str) -> Problem:
    kind, retryable = _BY_CODE.get(code) or _BY_CLASS.get(code[:2]) or ("unknown", False)
    notes: dict[str, Any] = {note: getattr(error, note, None) for note in _NOTES}
    return Problem(
        kind=kind,
        message=str(getattr(error, "message", None) or error),
        retryable=retryable,
        code=code,
        source=source,
        pg_code=code,
        exception_type=type(error).__name__,
        details={note: value for note, value in notes.items() if value is not None},
    )
