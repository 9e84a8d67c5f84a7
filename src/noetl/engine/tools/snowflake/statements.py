"""Reads a task's SQL by Snowflake's rules, binds its parameters, and turns results into plain JSON values."""

from __future__ import annotations

import datetime as dt
import importlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetl.engine.tools.json_text import read_json
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.values import text_of
from noetl.engine.tools.programs.source import load_script
from noetl.engine.tools.snowflake.problems import BadCommand
from noetl.engine.tools.snowflake.session import connector
from noetl.engine.tools.sql_split import replace_placeholders


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


_SEMI_STRUCTURED: Final = frozenset({"VARIANT", "OBJECT", "ARRAY", "MAP"})
_TYPES: Final = (
    "FIXED", "REAL", "TEXT", "DATE", "TIMESTAMP", "VARIANT", "TIMESTAMP_LTZ", "TIMESTAMP_TZ", "TIMESTAMP_NTZ",
    "OBJECT", "ARRAY", "BINARY", "TIME", "BOOLEAN", "GEOGRAPHY", "GEOMETRY", "VECTOR", "MAP", "FILE",
)  # fmt: skip
"""The connector's types by their codes."""


def names_of(description: Sequence[Any] | None) -> list[str]:
    """Return the names of a result's columns."""
    return [str(column[0]) for column in description or ()]


def rows_of(
    description: Sequence[Any] | None, found: Sequence[Any], *, json_as_text: bool = False
) -> list[dict[str, Any]]:
    """Return the rows of a result with plain values."""
    names = names_of(description)
    nested = [not json_as_text and type_of(column) in _SEMI_STRUCTURED for column in description or ()]
    return [
        {name: plain_value(value, nested=inner) for name, value, inner in zip(names, row, nested, strict=True)}
        for row in found
    ]


def type_of(column: Any) -> str:
    """Return the name of a column's type."""
    code = column[1]
    return _TYPES[code] if isinstance(code, int) and 0 <= code < len(_TYPES) else str(code)


def plain_value(value: Any, *, nested: bool) -> Any:
    """Return one value in plain JSON types; `nested` says that its text is JSON."""
    if isinstance(value, str):
        return _inner(value) if nested else value
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return plain(value.astimezone(dt.UTC))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return plain(bytes(value) if isinstance(value, bytearray) else value)


def _inner(text: str) -> Any:
    try:
        return read_json(text.encode())
    except ValueError:
        # Arrays may hold `undefined`, which JSON does not have.
        return text
