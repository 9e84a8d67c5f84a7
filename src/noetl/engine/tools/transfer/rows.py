"""The rows of a transfer: where a document keeps them, which columns they get, and the texts their values travel as."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from noetl.engine.tools.json_text import write_json
from noetl.engine.tools.outcome import Problem
from noetl.errors import NoetlError

Row = dict[str, Any]

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]")


class BadTransfer(NoetlError):
    """The transfer cannot be done as it is written."""

    code = "transfer_invalid"


class TransferFailed(NoetlError):
    """One end of the transfer answered with a problem."""

    code = "transfer_failed"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def at_path(document: Any, path: str | None) -> Any:
    """Return what a document has at a path such as `data.items`, `$.pages[0].rows` or nothing at all."""
    for name, index in _STEP.findall((path or "").removeprefix("$")):
        if index == "*":
            continue
        try:
            document = document[int(index)] if index else document[name]
        except (KeyError, IndexError, TypeError):
            raise BadTransfer(f"the source's answer has nothing at {path!r}: {name or index!r} is missing") from None
    return document


def rows_in(document: Any, path: str | None) -> list[Row]:
    """Return the rows a document holds at a path."""
    found = at_path(document, path)
    rows = found if isinstance(found, list) else [] if found is None else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise BadTransfer(
            f"the source's answer at {path or '$'!r} is no list of objects; set `data_path` to where it is"
        )
    return rows


def mapped(rows: Sequence[Row], mapping: Mapping[str, str] | None) -> list[Row]:
    """Return rows under the target's names; a source field that a row lacks is null."""
    if not mapping:
        return list(rows)
    return [{column: _field(row, source) for column, source in mapping.items()} for row in rows]


def _field(row: Row, name: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return the names of all fields, in the order they first come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def last_of_each(rows: Sequence[Row], key: Sequence[str]) -> list[Row]:
    """Return the last row for every key: a statement may not touch a row twice."""
    return list({tuple(write_json(row.get(name)) for name in key): row for row in rows}.values())


def column_texts(rows: Sequence[Row], name: str, text: Callable[[Any], str | None]) -> list[str | None]:
    """Return the texts of one column."""
    return [text(row.get(name)) for row in rows]


def json_text(value: Any, *, exact: bool) -> str | None:
    """Return a JSON column's text; where texts are not known to be values, one that is JSON already stays as it is."""
    if value is None:
        return None
    if isinstance(value, str) and not exact:
        try:
            orjson.loads(value)
        except ValueError:
            return write_json(value).decode()
        return value
    return write_json(value).decode()


def one_key(spec: Mapping[str, Any]) -> list[str]:
    """Return the columns of a target's `key`."""
    key = spec.get("key")
    names = [key] if isinstance(key, str) else list(key or ())
    if not names:
        raise BadTransfer("a transfer with mode upsert needs `target.key`: the columns that tell rows apart")
    return names
