"""Joins and stars of a query whose relations carry the key of each task as one more column."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from sqlglot import exp

from noetl.spark.queries.tree import is_projection, own_parts


class NotSeparable(Exception):
    """The query cannot run for several tasks at once; the message says why."""


class Source(msgspec.Struct):
    """One relation of a FROM clause."""

    name: str
    keyed: bool
    in_star: bool = True

    def column(self, key: str) -> exp.Expr:
        """The key of this relation's rows."""
        return exp.column(key, table=self.name)


def joined_key(join: exp.Join, before: int, left: exp.Expr | None, source: Source, key: str) -> exp.Expr | None:
    """Let a join of `before` relations with one more keep tasks apart; return the key of its rows, if they have one."""
    side, half = join.side, join.kind in ("SEMI", "ANTI")
    if not source.keyed:
        if left is not None and side in ("RIGHT", "FULL"):
            raise NotSeparable(f"{side} JOIN keeps rows that are the same for all tasks")
        return left
    right = source.column(key)
    if left is None:
        if half or side in ("LEFT", "FULL"):
            raise NotSeparable(f"{side or join.kind} JOIN keeps rows that are the same for all tasks")
        return right
    if join.args.get("method") == "NATURAL":
        raise NotSeparable("NATURAL JOIN")
    _equate(join, before, left, right, key)
    if side == "FULL":
        return exp.Coalesce(this=left.copy(), expressions=[right])
    return right if side == "RIGHT" else left


def _equate(join: exp.Join, before: int, left: exp.Expr, right: exp.Expr, key: str) -> None:
    equal = exp.EQ(this=left.copy(), expression=right.copy())
    if using := join.args.get("using"):
        if before > 1:
            raise NotSeparable("USING over more than two relations")
        join.set("using", [*using, exp.to_identifier(key)])
    elif (condition := join.args.get("on")) is not None:
        join.set("on", exp.and_(condition, equal))
    else:
        join.set("kind", "INNER" if join.kind == "CROSS" else join.args.get("kind"))
        join.set("on", equal)


def hide_in_stars(node: exp.Select, sources: list[Source], key: str) -> None:
    """Let the stars of a SELECT mean what they meant before its relations had the key as a column."""
    if any(
        not isinstance(star.parent, exp.Count) for star in own_parts(node, exp.Star) if not is_projection(node, star)
    ):
        raise NotSeparable("a star inside of a function")
    keyed = {one.name.lower() for one in sources if one.keyed}
    shown: list[exp.Expr] = []
    for one in node.expressions:
        if isinstance(one, exp.Star) and len(sources) > 1:
            shown.extend(_each_star(node, one, sources, key))
            continue
        if isinstance(one, exp.Star) or (one.is_star and isinstance(one, exp.Column) and one.table.lower() in keyed):
            _hide(one if isinstance(one, exp.Star) else one.this, key)
        shown.append(one)
    node.set("expressions", shown)


def _each_star(node: exp.Select, star: exp.Star, sources: list[Source], key: str) -> Iterator[exp.Expr]:
    joins = node.args.get("joins") or []
    plain = all(not join.args.get("using") and not join.args.get("method") for join in joins)
    if not plain or node.args.get("laterals") or any(star.args.values()) or not all(one.name for one in sources):
        raise NotSeparable("SELECT * over a join of a special kind")
    for source in sources:
        if source.in_star:
            whole = exp.Star()
            if source.keyed:
                _hide(whole, key)
            yield exp.Column(this=whole, table=exp.to_identifier(source.name))


def _hide(star: exp.Expr, key: str) -> None:
    star.set("except_", [*(star.args.get("except_") or []), exp.column(key)])
