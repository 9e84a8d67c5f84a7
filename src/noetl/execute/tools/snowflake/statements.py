"""Reads a task's SQL by Snowflake's own rules, and binds its parameters."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from noetl.execute.tools.port import Call
from noetl.execute.tools.postgres_values import text_of
from noetl.execute.tools.script_source import load_script
from noetl.execute.tools.snowflake.problems import BadCommand
from noetl.execute.tools.snowflake.session import connector
from noetl.execute.tools.sql_split import replace_placeholders


async def text_of_call(call: Call) -> str:
    """Return the SQL of a call: its `command`, or the text of the `script` it names."""
    script = call.options.get("script")
    if script is not None:
        return await load_script(script, call)
    command = call.options.get("command")
    texts = [command] if isinstance(command, str) else command
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise BadCommand("a snowflake task needs `command`: SQL text or a list of SQL texts")
    return "\n;\n".join(texts)


def statements_in(text: str) -> list[str]:
    """Return the statements of a text, each without its semicolon; comments alone are none."""
    connector()
    reader = importlib.import_module("snowflake.connector.util_text")
    found = []
    for statement, _ in reader.split_statements(io.StringIO(text)):
        bare = "".join(part for part, _ in reader.split_statements(io.StringIO(statement), remove_comments=True))
        words = bare.strip().rstrip(";").split(None, 1)
        if not words:
            continue
        if words[0].upper() in ("PUT", "GET"):
            # They would read and write files of the worker.
            raise BadCommand(f"{words[0].upper()} moves files of the client and is not possible in a task")
        found.append(statement.strip().rstrip(";"))
    if not found:
        raise BadCommand("the snowflake task has no statement in it")
    return found


def bound(text: str, params: Any) -> tuple[str, list[Any] | None]:
    """Return a statement with `?` for its placeholders, and the values in their order.

    `$1`, `%s`, `:name` and `%(name)s` are read as in PostgreSQL tasks; a list may also stand for `?` as they come.
    """
    if params is None:
        return text, None
    if isinstance(params, Mapping):
        given = {str(name): value for name, value in params.items()}
    elif isinstance(params, Sequence) and not isinstance(params, str | bytes):
        given = {str(place): value for place, value in enumerate(params, 1)}
    else:
        raise BadCommand("`params` of a snowflake task is a list (for $1, ?) or a mapping (for :name)")
    names: list[str] = []

    def placed(found: re.Match[str]) -> str:
        own = found["number"] or found["colon"] or found["percent"]
        if own is not None and own not in given and found["number"] is None and isinstance(params, Sequence):
            return found[0]
        names.append(own or str(1 + sum(name.isdigit() for name in names)))
        return "?"

    sent = replace_placeholders(text, placed)
    missing = sorted({name for name in names if name not in given})
    if missing:
        raise BadCommand(f"`params` of the snowflake task has no value for {', '.join(missing)}")
    if not names and isinstance(params, Sequence):
        return text, [_value(value) for value in params]
    return sent, [_value(given[name]) for name in names]


def _value(value: Any) -> Any:
    return text_of(value) if isinstance(value, dict | list | tuple) else value
