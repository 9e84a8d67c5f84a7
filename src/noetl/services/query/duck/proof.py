"""DuckDB's own reading of a query: its SQL goes in, and it must be one SELECT over nothing but the relations it was given.

The gate has seen to that already; this is the second look, by the parser that will run it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SERIES: Final = frozenset({"range", "generate_series", "unnest"})


class NotProven(Exception):
    """The query is not what it was taken for."""


def prove(connection: DuckDBPyConnection, sql: str, relations: Collection[str]) -> None:
    """Refuse SQL that DuckDB reads as anything but one SELECT over these relations."""
    ((text,),) = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()
    told: dict[str, Any] = json.loads(text)
    if told.get("error") or len(told.get("statements", ())) != 1:
        raise NotProven("it is not one SELECT")
    own = {name.casefold() for name in relations}
    for node, known in _nodes(told["statements"][0], frozenset()):
        kind = node.get("type")
        if kind == "BASE_TABLE":
            name = str(node.get("table_name")).casefold()
            if node.get("schema_name") or node.get("catalog_name") or (name not in own and name not in known):
                raise NotProven("it reads from something else")
        elif kind == "TABLE_FUNCTION" and node["function"].get("function_name") not in _SERIES:
            raise NotProven("it calls a function for rows")
        elif kind in ("SHOW_REF", "PIVOT", "BOUND_TABLE_REF", "COLUMN_DATA", "RECURSIVE_CTE_NODE", "STATEMENT_NODE"):
            raise NotProven("it is more than a SELECT")


def _nodes(value: Any, known: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Give every object of the tree with the names of WITH that hold where it stands."""
    left: list[tuple[Any, frozenset[str]]] = [(value, known)]
    while left:
        one, names = left.pop()
        if isinstance(one, list):
            left.extend((part, names) for part in one)
        elif isinstance(one, dict):
            entries = (one.get("cte_map") or {}).get("map") or ()
            names = names | {str(entry.get("key")).casefold() for entry in entries}
            yield one, names
            left.extend((part, names) for part in one.values())
