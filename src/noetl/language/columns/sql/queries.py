"""Walks over the queries of a tree: SELECTs, their sources, set operations and named queries, each to a relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from noetl.language.columns.origins import NOTHING, NotUnderstood, Origin, Origins, lifted, rows_of, united
from noetl.language.columns.sql.expressions import GENERATORS, Expressions
from noetl.language.columns.sql.relations import Named, Relation, Scope

_ROUNDS: Final = 20
"""How often a query that reads itself is followed before it is given up."""
_REFUSED: Final = {
    "match": "MATCH_RECOGNIZE",
    "connect": "CONNECT BY",
    "into": "INTO",
    "kind": "SELECT AS",
    "operation_modifiers": "TRANSFORM",
}

Known = Mapping[str, Relation]
"""Relations by lower-case name."""


class Walk:
    """The walk over one tree, whose tables are the inputs."""

    def __init__(self, tables: Known) -> None:
        self._tables = tables

    def query(self, node: exp.Expr, known: Known, outer: Scope | None) -> Relation:
        """Return what a query gives."""
        known = self._named_queries(node, known, outer)
        if isinstance(node, exp.Subquery):
            found = self.query(node.this, known, outer)
            return self._ordered(node, found, known, outer)
        if isinstance(node, exp.SetOperation):
            return self._ordered(node, self._set_operation(node, known, outer), known, outer)
        if isinstance(node, exp.Select):
            return self._select(node, known, outer)
        if isinstance(node, exp.Values):
            return _values(node)
        if isinstance(node, exp.Table):
            return self._table(node, known, Scope(outer))
        raise NotUnderstood(f"{node.key.upper()} is no SELECT")

    def _named_queries(self, node: exp.Expr, known: Known, outer: Scope | None) -> Known:
        clause = node.args.get("with_")
        if clause is None:
            return known
        for one in clause.expressions:
            names = [name.name for name in one.args["alias"].columns]
            name = one.alias.lower()
            found = self._recursive(one.this, names, name, known, outer) if clause.args.get("recursive") else None
            if found is None:
                found = self.query(one.this, known, outer).with_names(names)
            known = {**known, name: found}
        return known

    def _recursive(
        self, node: exp.Expr, names: Sequence[str], name: str, known: Known, outer: Scope | None
    ) -> Relation | None:
        """Follow a query that reads itself until nothing is added any more; None if it does not read itself."""
        if not any(table.name.lower() == name and not table.db for table in node.find_all(exp.Table)):
            return None
        if not isinstance(node, exp.Union):
            raise NotUnderstood("a query that reads itself and is no UNION")
        found = self.query(node.this, known, outer).with_names(names)
        for _ in range(_ROUNDS):
            grown = self.query(node, {**known, name: found}, outer).with_names(names)
            if grown == found:
                return found
            found = grown
        raise NotUnderstood("a query that reads itself without coming to rest")

    def _set_operation(self, node: exp.SetOperation, known: Known, outer: Scope | None) -> Relation:
        left, right = self.query(node.this, known, outer), self.query(node.expression, known, outer)
        indirect = left.indirect | right.indirect
        if left.rest is not None or right.rest is not None:
            raise NotUnderstood(f"{node.key.upper()} of columns that cannot be listed")
        if not isinstance(node, exp.Union):
            compared = frozenset(origin for _, origins in right.columns for origin in origins)
            return replace(left, indirect=indirect | compared)
        columns = _by_name(left, right) if node.args.get("by_name") else _by_place(left, right)
        return Relation(columns, inputs=left.inputs | right.inputs, indirect=indirect)

    def _ordered(self, node: exp.Expr, found: Relation, known: Known, outer: Scope | None) -> Relation:
        """Add what the order of a whole answer depends on."""
        order = node.args.get("order")
        if order is None:
            return found
        scope = Scope(outer, {"": found})
        return replace(found, indirect=found.indirect | self._order(order, scope, found.columns, known))

    def _select(self, node: exp.Select, known: Known, outer: Scope | None) -> Relation:
        for clause, spelled in _REFUSED.items():
            if node.args.get(clause):
                raise NotUnderstood(spelled)
        scope = Scope(outer)
        indirect = self._sources(node, scope, known)
        values = Expressions(self, scope, known, node.args.get("windows") or [])
        columns: list[Named] = []
        rest: Origins | None = None
        for one in node.expressions:
            made = self._outputs(one, values, scope)
            columns += made.columns
            rest = made.rest if rest is None else united(rest, made.rest or NOTHING)
            scope.aliases |= {name.lower(): origins for name, origins in made.columns if isinstance(one, exp.Alias)}
        if where := node.args.get("where"):
            indirect |= values.value(where).keys()
        for clause in ("having", "qualify"):
            if part := node.args.get(clause):
                indirect |= values.output(part).keys()
        if group := node.args.get("group"):
            indirect |= self._grouped(group, node, values, columns)
        for clause in ("order", "sort", "cluster"):
            if part := node.args.get(clause):
                indirect |= self._order(part, scope, columns, known)
        return Relation(tuple(columns), rest, scope.inputs, frozenset(indirect | values.indirect))

    def _grouped(self, group: exp.Expr, node: exp.Select, values: Expressions, columns: Sequence[Named]) -> set[Origin]:
        if group.args.get("all"):
            plain = [one for one in node.expressions if not values.aggregates(one)]
            return {origin for one in plain for origin in values.value(one)}
        found: set[Origin] = set()
        for one in group.expressions:
            if isinstance(one, exp.Literal) and one.is_int:
                found |= _at(columns, int(one.name)).keys()
            else:
                found |= values.value(one).keys()
        for clause in ("cube", "rollup", "grouping_sets"):
            for one in group.args.get(clause) or []:
                found |= values.value(one).keys()
        return found

    def _order(self, order: exp.Expr, scope: Scope, columns: Sequence[Named], known: Known) -> frozenset[Origin]:
        values = Expressions(self, scope, known, ())
        found: set[Origin] = set()
        for one in order.expressions:
            by = one.this if isinstance(one, exp.Ordered) else one
            if isinstance(by, exp.Var) and by.name.upper() == "ALL":
                found |= {origin for _, origins in columns for origin in origins}
            elif isinstance(by, exp.Literal) and by.is_int:
                found |= _at(columns, int(by.name)).keys()
            else:
                found |= values.output(by).keys()
        return frozenset(found | values.indirect)

    def _outputs(self, one: exp.Expr, values: Expressions, scope: Scope) -> Relation:
        """Return the columns that one expression of a SELECT gives."""
        if isinstance(one, exp.Star):
            return scope.star(None, _names(one.args.get("except_")))
        if isinstance(one, exp.Column) and isinstance(one.this, exp.Star):
            parts = [part.name for part in one.parts[:-1]]
            if len(parts) > 1:
                return Relation(rest=lifted(scope.column(parts), "transformed"))
            return scope.star(parts[0], _names(one.this.args.get("except_")))
        if isinstance(one, exp.Aliases):
            origins = values.value(one.this)
            return Relation(tuple((name.name, origins) for name in one.expressions))
        if isinstance(one, exp.Func) and (one.key in GENERATORS or one.name.lower() in GENERATORS):
            # Without names for them it cannot be told how many columns it gives.
            return Relation(rest=values.value(one))
        name = one.alias or (one.name if isinstance(one, exp.Column) else one.sql("spark"))
        return Relation(((name, values.value(one)),))

    def _sources(self, node: exp.Expr, scope: Scope, known: Known) -> set[Origin]:
        """Read FROM, joins and lateral views into a scope; returns what decides about their rows."""
        indirect: set[Origin] = set()
        if start := node.args.get("from_"):
            indirect |= self._source(start.this, scope, known)
        for join in node.args.get("joins") or []:
            indirect |= self._join(join, scope, known)
        for lateral in node.args.get("laterals") or []:
            indirect |= self._source(lateral, scope, known)
        return indirect

    def _source(self, node: exp.Expr, scope: Scope, known: Known) -> set[Origin]:
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
            # Only parentheses around a join: its tables keep their names.
            return self._source(node.this, scope, known)
        relation = self._table(node, known, scope)
        scope.add(node.alias_or_name or f"#{len(scope.relations)}", relation)
        nested = set(relation.indirect)
        for join in node.args.get("joins") or []:
            nested |= self._join(join, scope, known)
        for lateral in node.args.get("laterals") or []:
            nested |= self._source(lateral, scope, known)
        return nested

    def _table(self, node: exp.Expr, known: Known, scope: Scope) -> Relation:
        relation = self._plain_table(node, known, scope)
        if node.args.get("pivots"):
            opaque = rows_of(relation.inputs, "opaque")
            relation = replace(relation, columns=(), rest=opaque)
        alias = node.args.get("alias")
        return relation if alias is None else relation.with_names([name.name for name in alias.columns])

    def _plain_table(self, node: exp.Expr, known: Known, scope: Scope) -> Relation:
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table):
                inner = Scope(scope.outer)
                indirect = self._source(node.this, inner, known)
                return replace(inner.star(None), inputs=inner.inputs, indirect=frozenset(indirect))
            return self.query(node, known, scope.outer)
        if isinstance(node, exp.Lateral):
            return self._lateral(node, known, scope)
        if isinstance(node, exp.Values):
            return _values(node)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.db:
            found = known.get(node.name.lower()) or self._tables.get(node.name.lower())
            if found is not None:
                return found
            raise NotUnderstood(f"{node.name} is no input")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Func):
            return self._function(node.this, known, scope)
        raise NotUnderstood(f"{node.key.upper()} is no relation that is known")

    def _lateral(self, node: exp.Lateral, known: Known, scope: Scope) -> Relation:
        if isinstance(node.this, exp.Query):
            # It sees what stands before it in the same FROM.
            return self.query(node.this, known, scope)
        return self._function(node.this, known, scope)

    def _function(self, node: exp.Expr, known: Known, scope: Scope) -> Relation:
        values = Expressions(self, scope, known, ())
        return Relation(rest=lifted(values.value(node), "transformed"), indirect=frozenset(values.indirect))

    def _join(self, join: exp.Join, scope: Scope, known: Known) -> set[Origin]:
        before = set(scope.relations)
        left = Scope(scope.outer, dict(scope.relations), dict(scope.merged))
        indirect = self._source(join.this, scope, known)
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        added = [name for name in scope.relations if name not in before]
        right = scope.relations[added[0]] if len(added) == 1 else None
        names = [one.name for one in join.args.get("using") or []]
        if (join.method or "").upper() == "NATURAL":
            names = left.common(right) if right is not None else []
        if names:
            if right is None:
                raise NotUnderstood("USING with several tables on its right side")
            indirect |= left.merge(names, right, side)
            scope.merged = left.merged
        if on := join.args.get("on"):
            values = Expressions(self, scope, known, ())
            indirect |= values.value(on).keys() | values.indirect
        if kind in ("SEMI", "ANTI"):
            for name in added:
                del scope.relations[name]
        return indirect


def _values(node: exp.Values) -> Relation:
    first = node.expressions[0] if node.expressions else None
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    alias = node.args.get("alias")
    found = Relation(tuple((f"col{number + 1}", NOTHING) for number in range(width)))
    return found if alias is None else found.with_names([name.name for name in alias.columns])


def _by_place(left: Relation, right: Relation) -> tuple[Named, ...]:
    if len(left.columns) != len(right.columns):
        raise NotUnderstood("UNION of different numbers of columns")
    pairs = zip(left.columns, right.columns, strict=True)
    return tuple((name, united(origins, other)) for (name, origins), (_, other) in pairs)


def _by_name(left: Relation, right: Relation) -> tuple[Named, ...]:
    both = [(name, united(origins, right.find(name) or NOTHING)) for name, origins in left.columns]
    return (*both, *(one for one in right.columns if left.find(one[0]) is None))


def _at(columns: Sequence[Named], place: int) -> Origins:
    if not 1 <= place <= len(columns):
        raise NotUnderstood(f"there is no column {place}")
    return columns[place - 1][1]


def _names(nodes: Sequence[exp.Expr] | None) -> list[str]:
    return [node.name for node in nodes or []]
