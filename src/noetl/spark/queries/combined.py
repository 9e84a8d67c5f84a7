"""A query over the inputs of one task goes in; the same query over the inputs of many tasks at once comes out.

Every row carries the key of its task: it is in the answer, and in every group, window, distinct and join on the way.
A query for which that would not give each task the rows it gets alone is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from sqlglot import exp

from noetl.spark.queries.combined_joins import NotSeparable, Source, hide_in_stars, joined_key
from noetl.spark.queries.tree import DIALECT, aggregates, has_star, nested_queries, one_query, own_parts, queries_in

_CLAUSES: Final = {
    "limit": "LIMIT",
    "offset": "OFFSET",
    "fetch": "FETCH",
    "qualify": "QUALIFY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "match": "MATCH_RECOGNIZE",
    "into": "INTO",
    "connect": "CONNECT BY",
    "kind": "SELECT AS",
    "operation_modifiers": "TRANSFORM",
}
_UNSTEADY: Final = frozenset(
    {
        "rand",
        "random",
        "randn",
        "randstr",
        "uniform",
        "uuid",
        "generateuuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
    }
)


class Carried(msgspec.Struct, frozen=True):
    """A query that carries the key of each task as its last column."""

    sql: str
    always_answers: bool
    """Alone it answers with a row even for a task that has none: a task without rows here must run alone."""


def carry(sql: str, keyed: Collection[str], shared: Collection[str], key: str) -> Carried:
    """Return the query with the tasks' key in it; `keyed` inputs have the key as a column, `shared` ones are alike."""
    tree = one_query(sql)
    if any(one.name.lower() == key for one in tree.find_all(exp.Identifier)):
        raise NotSeparable(f"it uses the name {key}")
    for function in tree.find_all(exp.Func):
        name = function.name if isinstance(function, exp.Anonymous) else function.key
        if name.lower() in _UNSTEADY:
            raise NotSeparable(f"{name} gives another answer each time")
    carrying = _Carrying({one.lower() for one in keyed}, {one.lower() for one in shared}, key, tree)
    if not carrying.query(tree, {}):
        raise NotSeparable("no input that differs between the tasks is read")
    if order := tree.args.get("order"):
        order.set("expressions", [exp.Ordered(this=exp.column(key), nulls_first=True), *order.expressions])
    return Carried(tree.sql(DIALECT), carrying.always_answers)


class _Carrying:
    """The walk over one query."""

    def __init__(self, keyed: set[str], shared: set[str], key: str, root: exp.Query) -> None:
        self._keyed, self._shared, self._key, self._root = keyed, shared, key, root
        self._made = 0
        self.always_answers = False

    def query(self, node: exp.Expr, known: dict[str, bool]) -> bool:
        """Let a query carry the key; false when it reads nothing that differs between tasks, and stays as it is."""
        _refuse_clauses(node)
        known = known | self._common(node, known)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, known)
        if isinstance(node, exp.SetOperation):
            if node.args.get("by_name"):
                raise NotSeparable(f"{node.key.upper()} BY NAME")
            left, right = self.query(node.this, known), self.query(node.expression, known)
            if left != right:
                raise NotSeparable(f"one side of {node.key.upper()} is the same for all tasks")
            return left
        if isinstance(node, exp.Select):
            return self._select(node, known)
        raise NotSeparable(f"{node.key.upper()} is no SELECT")

    def _common(self, node: exp.Expr, known: dict[str, bool]) -> dict[str, bool]:
        clause = node.args.get("with_")
        if clause is None:
            return {}
        if clause.args.get("recursive"):
            raise NotSeparable("WITH RECURSIVE")
        made: dict[str, bool] = {}
        for one in clause.expressions:
            made[one.alias.lower()] = self.query(one.this, known | made)
            if made[one.alias.lower()]:
                self._name_column(one)
        return made

    def _select(self, node: exp.Select, known: dict[str, bool]) -> bool:
        sources, key = self._sources(node, known)
        for nested in nested_queries(node):
            self._expression_query(nested, known, key)
        if key is None:
            return False
        for window in own_parts(node, exp.Window):
            if window.args.get("alias") is None:
                window.set("partition_by", [*(window.args.get("partition_by") or []), key.copy()])
        self._group(node, key)
        hide_in_stars(node, sources, self._key)
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise NotSeparable("DISTINCT ON")
        node.append("expressions", exp.alias_(key.copy(), self._key))
        return True

    def _group(self, node: exp.Select, key: exp.Expr) -> None:
        group = node.args.get("group")
        if group is not None:
            if group.find(exp.Cube, exp.Rollup, exp.GroupingSets) or group.args.get("all") or group.args.get("totals"):
                raise NotSeparable("GROUP BY with CUBE, ROLLUP, GROUPING SETS or ALL")
            group.append("expressions", key.copy())
            return
        if node.args.get("having") is None and not any(aggregates(node)):
            return
        if node is not self._root or node.args.get("having") is not None:
            raise NotSeparable("an aggregate over all rows inside of the query")
        self.always_answers = True
        node.set("group", exp.Group(expressions=[key.copy()]))

    def _sources(self, node: exp.Select, known: dict[str, bool]) -> tuple[list[Source], exp.Expr | None]:
        start = node.args.get("from_")
        if any(not one.args.get("view") for one in node.args.get("laterals") or []):
            raise NotSeparable("LATERAL")
        if start is None:
            return [], None
        first = self._source(start.this, known)
        sources, key = [first], first.column(self._key) if first.keyed else None
        for join in node.args.get("joins") or []:
            if join.args.get("method") not in (None, "", "NATURAL") or any(queries_in(join.args.get("on"))):
                raise NotSeparable("a join of a special kind")
            source = self._source(join.this, known)
            key = joined_key(join, len(sources), key, source, self._key)
            source.in_star = join.kind not in ("SEMI", "ANTI")
            sources.append(source)
        return sources, key

    def _source(self, node: exp.Expr, known: dict[str, bool]) -> Source:
        _refuse_clauses(node)
        if node.args.get("joins") or node.args.get("laterals"):
            raise NotSeparable("a join inside of parentheses")
        if isinstance(node, exp.Values):
            return Source(node.alias, keyed=False)
        if isinstance(node, exp.Subquery):
            return self._derived(node, known)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or node.db:
            raise NotSeparable("a relation that is no input")
        name = node.name.lower()
        if name not in known and name not in self._keyed and name not in self._shared:
            raise NotSeparable(f"{node.name} is no input")
        keyed = known.get(name, name in self._keyed)
        if keyed and node.args.get("alias") is not None and node.args["alias"].columns:
            raise NotSeparable("a table with renamed columns")
        return Source(node.alias_or_name, keyed)

    def _derived(self, node: exp.Subquery, known: dict[str, bool]) -> Source:
        if not isinstance(node.this, exp.Query) or isinstance(node.this, exp.Table):
            raise NotSeparable("a join inside of parentheses")
        keyed = self.query(node.this, known)
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(self._fresh())))
        if keyed:
            self._name_column(node)
        return Source(node.alias, keyed)

    def _name_column(self, node: exp.Expr) -> None:
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            alias.append("columns", exp.to_identifier(self._key))

    def _expression_query(self, node: exp.Query, known: dict[str, bool], outer: exp.Expr | None) -> None:
        """Tie a query inside of an expression to the task of the row it is asked for."""
        if not self._reads_keyed(node, known):
            return
        inner = node.this if isinstance(node, exp.Subquery) else node
        if outer is None or not isinstance(inner, exp.Select) or inner.args.get("with_"):
            raise NotSeparable("a query inside of an expression that is more than one SELECT")
        _refuse_clauses(inner)
        if inner.args.get("group") or inner.args.get("having") or any(own_parts(inner, exp.Window)):
            raise NotSeparable("a query inside of an expression with GROUP BY, HAVING or a window")
        if has_star(inner) and not isinstance(node.parent, exp.Exists):
            raise NotSeparable("SELECT * inside of an expression")
        self._part_names(inner, outer)
        _, key = self._sources(inner, known)
        for nested in nested_queries(inner):
            self._expression_query(nested, known, key)
        if key is None:
            raise NotSeparable("a query inside of an expression that reaches past what it is part of")
        inner.where(exp.EQ(this=key.copy(), expression=outer.copy()), copy=False)

    def _reads_keyed(self, node: exp.Query, known: dict[str, bool]) -> bool:
        names = (table.name.lower() for table in node.find_all(exp.Table))
        return any(known.get(name, name in self._keyed) for name in names)

    def _part_names(self, inner: exp.Select, outer: exp.Expr) -> None:
        """Rename relations of an inner query that are called like the outer one whose key is asked for."""
        taken = {one.table.lower() for one in outer.find_all(exp.Column)}
        relations = [inner.args["from_"].this, *(join.this for join in inner.args.get("joins") or [])]
        for relation in relations:
            name = relation.alias_or_name
            if name.lower() not in taken:
                continue
            if any(
                one.alias_or_name.lower() == name.lower()
                for sub in nested_queries(inner)
                for one in sub.find_all(exp.Table)
            ):
                raise NotSeparable(f"{name} stands for several relations")
            fresh = self._fresh()
            relation.set("alias", exp.TableAlias(this=exp.to_identifier(fresh)))
            for column in inner.find_all(exp.Column):
                if column.table.lower() == name.lower():
                    column.set("table", exp.to_identifier(fresh))

    def _fresh(self) -> str:
        self._made += 1
        return f"{self._key}_{self._made}"


def _refuse_clauses(node: exp.Expr) -> None:
    for name, spelled in _CLAUSES.items():
        if node.args.get(name) and not (name == "kind" and not isinstance(node, exp.Select)):
            raise NotSeparable(spelled)
