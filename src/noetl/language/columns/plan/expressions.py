"""What the value of an expression of a Spark plan is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from noetl.language.columns.origins import NOTHING, Origin, Origins, lifted, rows_of, united
from noetl.language.columns.plan.tree import Node

if TYPE_CHECKING:
    from noetl.language.columns.plan.operators import Seen
    from noetl.model.lineage import Kind

_SAME: Final = frozenset({"Alias", "Cast", "UpCast", "AnsiCast", "TempResolvedColumn", "SortOrder", "KnownNotNull"})
_NOTHING: Final = frozenset({"Literal", "NamedLambdaVariable", "UnresolvedNamedLambdaVariable"})
_USER_CODE: Final = ("UDF", "UDAF", "UDTF", "CallMethodViaReflection", "Aggregator", "TypedAggregate")
"""What the name of an expression holds that runs code Spark cannot look into."""


class Walker(Protocol):
    """Whoever can follow a plan inside of an expression."""

    def walk(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        """Return what comes out of it."""
        ...


class Values:
    """Expressions over values that are known. What plans inside of them depend on is gathered in `indirect`."""

    def __init__(self, walker: Walker, known: Mapping[int, Origins], inputs: frozenset[str], unknown: Origins) -> None:
        self._walker = walker
        self._known = known
        self._inputs = inputs
        self._unknown = unknown
        self.indirect: set[Origin] = set()

    def value(self, node: Node) -> Origins:
        """Return what an expression is made of."""
        if node.name == "AttributeReference":
            assert node.expr_id is not None
            return self._known.get(node.expr_id, self._unknown)
        if node.name in _NOTHING:
            return NOTHING
        if node.name in _SAME:
            return self.value(node.children[0])
        if isinstance(node.params.get("plan"), Node):
            return self._asked(node)
        if node.name == "OuterReference":
            return united(*map(self.value, node.nodes("e")))
        if node.name == "WindowExpression":
            return self._window(node)
        inside = united(*map(self.value, node.children))
        if any(part in node.name for part in _USER_CODE):
            return lifted(inside, "opaque") or {(None, None): "opaque"}
        if node.name == "AggregateExpression":
            return lifted(inside, "aggregated") or rows_of(self._inputs, "aggregated")
        return lifted(inside, "transformed")

    def _asked(self, node: Node) -> Origins:
        found = self._walker.walk(node.params["plan"], self._known)
        self.indirect |= found.indirect
        if node.name == "Exists":
            made: dict[Origin, Kind] = dict.fromkeys(found.indirect, "transformed")
            return made or rows_of(found.inputs, "transformed")
        origins = united(*(found.values[number] for number, _ in found.out))
        return origins if len(found.out) == 1 else lifted(origins, "transformed")

    def _window(self, node: Node) -> Origins:
        function, spec = node.children
        inside = self._inside(function)
        if not inside:
            # A rank has no argument: it is made of what it ranks by.
            order = [one for one in spec.children if one.name == "SortOrder"]
            inside = united(*map(self.value, order)) or rows_of(self._inputs, "aggregated")
        return lifted(inside, "aggregated")

    def _inside(self, function: Node) -> Origins:
        if function.name == "AggregateExpression":
            return self._inside(function.children[0])
        found = united(*map(self.value, function.children))
        return lifted(found, "opaque") if any(part in function.name for part in _USER_CODE) else found
