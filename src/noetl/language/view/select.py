"""What a view's SELECT may be: one that gives the same rows row by row as all at once. Reads it, never runs it.

A filter after grouping would leave rows behind that no longer hold, and what depends on the clock or on chance could
not be computed again; both are refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noetl.language.dag.sql import SqlUnreadable, read_select
from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.model import Place

_UNSTEADY: Final = {
    *("current_timestamp", "now", "current_date", "curdate", "current_time", "localtimestamp", "current_timezone"),
    *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id"),
    *("spark_partition_id", "input_file_name", "current_user", "session_user", "user", "version"),
    *("first", "first_value", "last", "last_value", "any_value", "collect_list", "array_agg"),
    *("reflect", "java_method"),
}
"""Functions whose value depends on the clock, on chance or on the order of rows."""
_WINDOW: Final = re.compile(r"(?<![\w`.])window(?=\s*[(.])", re.IGNORECASE)
_ADVICE: Final = {
    "first": "min_by(x, event_id)",
    "first_value": "min_by(x, event_id)",
    "last": "max_by(x, event_id)",
    "last_value": "max_by(x, event_id)",
    "any_value": "max(x)",
    "collect_list": "sort_array(collect_set(x))",
    "array_agg": "sort_array(collect_set(x))",
}


def hold_select(
    text: str, node: Node | None, problems: Problems, relation: str, keys: Sequence[Node], *, streams: bool
) -> None:
    """Note what breaks a rule of views; `node` is where the SELECT stands, if not in a file of its own."""
    try:
        found = read_select(_readable(text))
    except SqlUnreadable as error:
        said = f"the SQL cannot be taken: {error}"
        problems.error("sql_invalid", said, _at(node, error.line, error.column), "write one SELECT")
        return
    for table in found.tables:
        if table.name.lower() != relation:
            said = f"the SQL reads {table.name}, and a view reads {relation} alone"
            problems.error("unknown_table", said, _at(node, table.line, table.column), suggest(table.name, [relation]))
    tree = sqlglot.parse_one(_readable(text), read="spark")
    _hold_functions(tree, node, problems)
    if streams:
        _hold_shape(tree, node, problems)
    if found.columns is not None:
        known = {name.lower() for name in found.columns}
        for key in keys:
            if key.text is not None and key.text.lower() not in known:
                said = f"the key {key.text} is no column of the SELECT"
                problems.error("unknown_column", said, key.place, suggest(key.text, found.columns))


def hold_condition(node: Node, problems: Problems) -> None:
    """Note what is wrong with a condition over the result's columns."""
    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE {node.text}", read="spark")
    except SqlglotError:
        problems.error("sql_invalid", "keep cannot be read", node.place, "write a condition such as running > 0")
        return
    if tree.find(exp.Subquery, exp.AggFunc, exp.Window) or len(list(tree.find_all(exp.Select))) != 1:
        said = "keep looks at one row of the result: no subqueries and no aggregates"
        problems.error("sql_refused", said, node.place, "make a column of it in the SELECT")
    _hold_functions(tree, node, problems)


def columns_read(sql: str, known: Collection[str]) -> list[str] | None:
    """Return the columns of events that a SELECT names; None if it takes all of them."""
    tree = sqlglot.parse_one(_readable(sql), read="spark")
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    named = {column.name.lower() for column in tree.find_all(exp.Column)}
    return [name for name in known if name in named]


def _readable(text: str) -> str:
    """Return SQL in which Spark's function `window` cannot be taken for the clause of that name."""
    return _WINDOW.sub("`window`", text)


def _hold_functions(tree: exp.Expr, node: Node | None, problems: Problems) -> None:
    for function in tree.find_all(exp.Func):
        name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
        if name in _UNSTEADY:
            said = f"{name} does not give the same value again, so the view could not be proven"
            advice = f"write {_ADVICE[name]}" if name in _ADVICE else "use event_time or ingest_time of the events"
            problems.error("sql_refused", said, _at(node, *_place(function)), advice)


def _hold_shape(tree: exp.Expr, node: Node | None, problems: Problems) -> None:
    refused: list[tuple[exp.Expr | None, str, str]] = [
        (tree.find(exp.Having), "HAVING would leave rows behind that no longer hold", "write the condition as keep: …"),
        (
            tree.find(exp.Window),
            "a window function needs all rows at once",
            "group by the key, with max_by and the like",
        ),
        (tree.find(exp.Join), "a view reads its events once, without joins", "group by a shared id instead"),
        (tree.find(exp.Order), "a view has no order", "sort when you read it"),
        (tree.find(exp.Limit), "a view has no limit", "choose rows with WHERE, or with keep: …"),
        (tree.find(exp.SetOperation), "a view is one SELECT", "choose rows with WHERE"),
        (tree.find(exp.Subquery, exp.With, exp.Exists), "a view is one SELECT without subqueries", "write one SELECT"),
    ]
    for part, said, hint in refused:
        if part is not None:
            problems.error("sql_refused", said, _at(node, *_place(part)), hint)


def _place(part: exp.Expr) -> tuple[int, int]:
    for one in part.walk():
        if one.meta.get("line"):
            return int(one.meta["line"]), 1
    return 1, 1


def _at(node: Node | None, line: int, column: int) -> Place:
    if node is None:
        return Place(line, column)
    return Place(node.place.line + line, 1) if node.is_literal else node.place
