"""What the value of an expression is made of: its columns, those of the queries in it, and how they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from sqlglot import exp

from noetl.language.columns.origins import NOTHING, NotUnderstood, Origin, Origins, lifted, rows_of, united
from noetl.language.columns.sql.relations import Relation, Scope

if TYPE_CHECKING:
    from noetl.model.lineage import Kind

AGGREGATES: Final = frozenset(
    (
        "any", "any_value", "approx_percentile", "approx_top_k", "array_agg", "bit_and", "bit_or", "bit_xor",
        "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_list",
        "collect_set", "count_if", "count_min_sketch", "covar_pop", "covar_samp", "every", "first", "first_value",
        "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kurtosis", "last", "last_value", "listagg", "max_by",
        "mean", "median", "min_by", "mode", "percentile", "percentile_approx", "percentile_cont", "percentile_disc",
        "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
        "regr_syy", "skewness", "some", "std", "stddev", "string_agg", "try_avg", "try_sum", "variance",
        "theta_sketch_agg", "theta_union_agg", "theta_intersection_agg", "kll_sketch_agg_bigint",
        "kll_sketch_agg_double", "kll_sketch_agg_float",
    )
)  # fmt: skip
"""Functions over many rows that the reader of SQL takes for plain ones."""
GENERATORS: Final = frozenset(
    (
        "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
        "explodeouter", "posexplodeouter",
    )
)  # fmt: skip
"""Functions that give several columns, or rows."""
_OPAQUE: Final = frozenset({"reflect", "java_method", "try_reflect"})
_OF_GROUPS: Final = frozenset({"grouping", "grouping_id", "groupingid"})
"""They tell about the query, not about data."""
_SAME: Final = (exp.Alias, exp.Paren, exp.Cast, exp.TryCast, exp.Where, exp.Having, exp.Qualify, exp.Ordered)


class Walker(Protocol):
    """Whoever can follow a query inside of an expression."""

    def query(self, node: exp.Expr, known: Mapping[str, Relation], outer: Scope | None) -> Relation:
        """Return what it gives."""
        ...


class Expressions:
    """The expressions of one SELECT. What queries inside of them depend on is gathered in `indirect`."""

    def __init__(
        self, walker: Walker, scope: Scope, known: Mapping[str, Relation], windows: Sequence[exp.Expr]
    ) -> None:
        self._walker = walker
        self._scope = scope
        self._known = known
        self._windows = {one.this.name.lower(): one for one in windows if isinstance(one.this, exp.Identifier)}
        self._after = False
        self.indirect: set[Origin] = set()

    def value(self, node: exp.Expr) -> Origins:
        """Return what an expression is made of."""
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, _SAME):
            return self.value(node.this)
        if isinstance(node, exp.Exists):
            return self._exists(node.this)
        if isinstance(node, exp.Query):
            return self._answer(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        if isinstance(node, exp.Lambda):
            return self._lambda(node)
        if isinstance(node, exp.Star | exp.Literal | exp.Identifier | exp.DataType):
            return NOTHING
        if isinstance(node, exp.Func) and _called(node) in _OF_GROUPS:
            return NOTHING
        inside = self._inside(node)
        if isinstance(node, exp.Func) and _called(node) in _OPAQUE:
            return lifted(inside, "opaque") or {(None, None): "opaque"}
        if is_aggregate(node):
            return lifted(inside, "aggregated") or rows_of(self._scope.inputs, "aggregated")
        return lifted(inside, "transformed")

    def output(self, node: exp.Expr) -> Origins:
        """Return the same for an expression that may use the columns of its SELECT by name."""
        self._after = True
        try:
            return self.value(node)
        finally:
            self._after = False

    def aggregates(self, node: exp.Expr) -> bool:
        """Tell whether an expression is over many rows."""
        parts = node.walk(prune=lambda one: isinstance(one, exp.Query | exp.Window))
        return any(is_aggregate(one) for one in parts)

    def _column(self, node: exp.Column) -> Origins:
        parts = [part.name for part in node.parts]
        if self._after:
            return self._scope.output(parts)
        return self._scope.column(parts)

    def _answer(self, node: exp.Query) -> Origins:
        found = self._asked(node)
        if len(found.columns) == 1 and found.rest is None:
            return found.columns[0][1]
        return lifted(united(*(origins for _, origins in found.columns), found.rest or NOTHING), "transformed")

    def _exists(self, node: exp.Expr) -> Origins:
        found = self._asked(node)
        made: dict[Origin, Kind] = dict.fromkeys(found.indirect, "transformed")
        return made or rows_of(found.inputs, "transformed")

    def _asked(self, node: exp.Expr) -> Relation:
        found = self._walker.query(node, self._known, self._scope)
        self.indirect |= found.indirect
        return found

    def _window(self, node: exp.Window) -> Origins:
        spec: exp.Expr = node
        name = node.args.get("alias")
        if name is not None:
            named = self._windows.get(name.name.lower())
            if named is None:
                raise NotUnderstood(f"there is no window {name.name}")
            spec = named
        order = spec.args.get("order")
        by = united(*map(self.value, order.expressions if order is not None else ()))
        within = united(*map(self.value, spec.args.get("partition_by") or ()))
        self.indirect |= by.keys() | within.keys()
        made = self._inside(node.this)
        # A rank has no argument: it is made of what it ranks by.
        return lifted(made, "aggregated") or lifted(by, "aggregated") or rows_of(self._scope.inputs, "aggregated")

    def _inside(self, node: exp.Expr) -> Origins:
        """Return what the arguments of a function are made of, and what FILTER and WITHIN GROUP add to them."""
        if isinstance(node, exp.Filter | exp.WithinGroup):
            return united(self._inside(node.this), self.value(node.expression))
        return united(*map(self.value, _children(node)))

    def _lambda(self, node: exp.Lambda) -> Origins:
        before = self._scope.bound
        self._scope.bound = (*before, *(one.name.lower() for one in node.expressions))
        try:
            return self.value(node.this)
        finally:
            self._scope.bound = before


def is_aggregate(node: exp.Expr) -> bool:
    """Tell whether a function is over many rows."""
    if isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup):
        return True
    return isinstance(node, exp.Func) and _called(node) in AGGREGATES


def _called(node: exp.Func) -> str:
    return (node.name if isinstance(node, exp.Anonymous) else node.key).lower()


def _children(node: exp.Expr) -> list[exp.Expr]:
    return [one for one in node.iter_expressions() if isinstance(one, exp.Expr)]
