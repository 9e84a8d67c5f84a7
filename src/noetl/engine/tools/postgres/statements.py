"""Reads a task's SQL: which statements give rows, which stand outside transactions, which leave traces in the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from noetl.engine.tools.postgres.problems import BadCommand
from noetl.engine.tools.sql_split import Statement, statements

_COMMANDS = frozenset(
    {
        "ABORT", "ALTER", "ANALYZE", "BEGIN", "CHECKPOINT", "CLOSE", "CLUSTER", "COMMENT", "COMMIT", "CREATE",
        "DEALLOCATE", "DECLARE", "DELETE", "DISCARD", "DO", "DROP", "END", "GRANT", "INSERT", "LISTEN", "LOAD", "LOCK",
        "MERGE", "NOTIFY", "PREPARE", "REFRESH", "REINDEX", "RELEASE", "RESET", "REVOKE", "ROLLBACK", "SAVEPOINT",
        "SECURITY", "SET", "START", "TRUNCATE", "UNLISTEN", "UPDATE", "VACUUM",
    }
)  # fmt: skip
_DECLARING = frozenset({"ALTER", "COMMENT", "CREATE", "DROP", "GRANT", "LOCK", "RESET", "REVOKE", "SET", "TRUNCATE"})
_VERBS = frozenset({"SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE"})
_CONTROL = frozenset(
    {"ABORT", "BEGIN", "CHECKPOINT", "COMMIT", "END", "RELEASE", "ROLLBACK", "SAVEPOINT", "START", "VACUUM"}
)
_OUTSIDE = frozenset(
    {
        ("ALTER", "SYSTEM"), ("CREATE", "DATABASE"), ("DROP", "DATABASE"), ("CREATE", "TABLESPACE"),
        ("DROP", "TABLESPACE"), ("CREATE", "SUBSCRIPTION"), ("ALTER", "SUBSCRIPTION"), ("DROP", "SUBSCRIPTION"),
        ("PREPARE", "TRANSACTION"), ("REINDEX", "DATABASE"), ("REINDEX", "SYSTEM"),
    }
)  # fmt: skip
_SESSION = frozenset(
    {"CALL", "DEALLOCATE", "DECLARE", "DISCARD", "DO", "EXECUTE", "LISTEN", "LOAD", "PREPARE", "RESET", "SET"}
)
_TRACES = ("set_config", "advisory", "pg_temp", "temp ", "temporary")


def read_command(command: Any, field: str = "command") -> tuple[Statement, ...]:
    """Return the statements of a task's `command`, a text or a list of texts; `field` is where they stood."""
    texts = [command] if isinstance(command, str) else command
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise BadCommand("a postgres task needs `command`: SQL text or a list of SQL texts")
    found = statements(texts[0]) if len(texts) == 1 else tuple(one for text in texts for one in statements(text))
    if not found:
        raise BadCommand(f"the postgres task's `{field}` has no statement in it")
    for statement in found:
        if statement.words[:1] == ("COPY",) and ("STDIN" in statement.words or "STDOUT" in statement.words):
            raise BadCommand("COPY from or to the client is not possible in a task; use a transfer task")
    return found


def _once(judge: Callable[[Statement], bool]) -> Callable[[Statement], bool]:
    """Ask about a statement once: the same one runs for row after row."""

    @wraps(judge)
    def told(statement: Statement) -> bool:
        known = statement.judged.get(judge)
        if known is None:
            known = statement.judged[judge] = judge(statement)
        return known

    return told


@_once
def gives_rows(statement: Statement) -> bool:
    """Say whether a statement has a result to fetch; in doubt it has."""
    words = statement.words
    first = words[0] if words else ""
    if first == "WITH":
        pairs = zip(words[1:], (*words[2:], ""), strict=True)
        first = next((word for word, after in pairs if word in _VERBS and after != "AS"), "SELECT")
    return first not in _COMMANDS or "RETURNING" in words


@_once
def is_silent(statement: Statement) -> bool:
    """Say whether a statement gives no rows and touches none that would be counted, as one that declares something."""
    words = statement.words
    # `CREATE TABLE … AS` tells how many rows it made.
    return bool(words) and words[0] in _DECLARING and "AS" not in words


@_once
def stands_alone(statement: Statement) -> bool:
    """Say whether a statement controls transactions or refuses to run in one."""
    words = statement.words
    return bool(words) and (words[0] in _CONTROL or words[:2] in _OUTSIDE or "CONCURRENTLY" in words)


def leaves_traces(found: Sequence[Statement]) -> bool:
    """Say whether the session may be another one afterwards: settings, locks, cursors, temporary tables."""
    return any(map(_leaves_a_trace, found))


@_once
def _leaves_a_trace(statement: Statement) -> bool:
    text = statement.text.lower()
    return any(word in _SESSION for word in statement.words[:1]) or any(trace in text for trace in _TRACES)
