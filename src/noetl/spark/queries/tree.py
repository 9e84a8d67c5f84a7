"""Reads SQL text as a tree and finds parts of it. It runs nothing and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noetl.errors import InputError

DIALECT: Final = "spark"


def one_query(sql: str) -> exp.Query:
    """Return the tree of a text that is one SELECT and nothing else."""
    try:
        found = [one for one in sqlglot.parse(sql, dialect=DIALECT) if one is not None]
    except SqlglotError as error:
        told = getattr(error, "errors", None) or [{}]
        where = f" at line {told[0]['line']}, column {told[0]['col']}" if told[0].get("line") else ""
        raise InputError(f"the SQL cannot be read{where}: {told[0].get('description') or 'see its text'}") from error
    if len(found) != 1 or not isinstance(found[0], exp.Query) or isinstance(found[0], exp.Table):
        raise InputError("the SQL of a job must be one SELECT (or WITH … SELECT), which changes nothing")
    if found[0].find(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Into, exp.Command):
        raise InputError("the SQL of a job only reads: it must not insert, update, delete, create or drop")
    return found[0]


def own_parts(node: exp.Select, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield what belongs to a SELECT itself, not to queries in it."""
    for name in ("expressions", "where", "group", "having", "order", "windows", "laterals"):
        clause = node.args.get(name) or []
        for part in clause if isinstance(clause, list) else [clause]:
            for one in part.walk(prune=lambda inner: isinstance(inner, exp.Query)):
                if isinstance(one, kinds):
                    yield one


def nested_queries(node: exp.Select) -> list[exp.Query]:
    return [one for one in own_parts(node, exp.Query) if isinstance(one, exp.Query)]


def queries_in(node: exp.Expr | None) -> Iterator[exp.Expr]:
    return iter(()) if node is None else node.find_all(exp.Query)


def aggregates(node: exp.Select) -> Iterator[exp.Expr]:
    for one in own_parts(node, exp.AggFunc):
        above = one.find_ancestor(exp.Window, exp.Select)
        if not (isinstance(above, exp.Window) and one is _windowed(above)):
            yield one


def _windowed(window: exp.Window) -> exp.Expr:
    """The function a window is of, below FILTER and IGNORE NULLS."""
    inner: exp.Expr = window.this
    while isinstance(inner, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.this
    return inner


def has_star(node: exp.Select) -> bool:
    return any(one.is_star for one in node.expressions)


def is_projection(node: exp.Select, star: exp.Expr) -> bool:
    return any(star is one or star is getattr(one, "this", None) for one in node.expressions if one.is_star)
