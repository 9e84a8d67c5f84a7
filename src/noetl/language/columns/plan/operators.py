"""Operators of a Spark plan, followed from the inputs to the answer: which numbers values have, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from noetl.language.columns.origins import NOTHING, Origin, Origins, lifted, rows_of, united
from noetl.language.columns.plan.expressions import Values
from noetl.language.columns.plan.tree import Node

_NOT_ABOUT_ROWS: Final = frozenset({"RepartitionByExpression", "RebalancePartitions", "CollectMetrics"})
_ONE_SIDED: Final = ("LeftSemi", "LeftAnti", "ExistenceJoin")
_OUTPUTS: Final = ("output", "outputAttrs", "resultAttributes", "serializer", "outputObjAttr")
_ROUNDS: Final = 20
_PLAIN_LEAVES: Final = frozenset({"OneRowRelation", "Range"})


@dataclass(frozen=True)
class Seen:
    """What comes out of an operator."""

    out: tuple[tuple[int, str], ...]
    """Numbers and names of its columns, in order."""
    values: Mapping[int, Origins]
    inputs: frozenset[str] = frozenset()
    indirect: frozenset[Origin] = frozenset()

    def with_columns(self, made: Sequence[tuple[int, str, Origins]]) -> Seen:
        """Return the same with columns besides."""
        more = {number: origins for number, _, origins in made}
        names = tuple((number, name) for number, name, _ in made)
        return replace(self, out=self.out + names, values={**self.values, **more})


class Operators:
    """The walk over one plan."""

    def __init__(self, mark: str, inputs: Sequence[str], here: Origins) -> None:
        self._mark = mark
        self._inputs = inputs
        self._here = here
        self._named: dict[int, Node] = {}
        self._known: dict[int, Seen] = {}
        self._loops: dict[int, Seen] = {}
        self._kinds: dict[str, Callable[[Node, Mapping[int, Origins]], Seen]] = {
            "SubqueryAlias": self._alias,
            "Project": self._project,
            "Aggregate": self._aggregate,
            "Window": self._window,
            "Generate": self._generate,
            "Expand": self._expand,
            "Join": self._join,
            "AsOfJoin": self._join,
            "LateralJoin": self._lateral,
            "Union": self._union,
            "Intersect": self._one_side,
            "Except": self._one_side,
            "WithCTE": self._with,
            "CTERelationDef": self._only_child,
            "CTERelationRef": self._reference,
            "View": self._only_child,
            "UnionLoop": self._loop,
            "UnionLoopRef": self._loop_reference,
        }

    def walk(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        """Return what comes out of an operator; `outer` are values of the plan around it."""
        known = self._kinds.get(node.name)
        if known is not None:
            return known(node, outer)
        return self._any(node, outer) if node.children else self._leaf(node)

    def values(self, seen: Seen, outer: Mapping[int, Origins]) -> Values:
        """Return the expressions over what comes out of an operator."""
        return Values(self, {**outer, **seen.values}, seen.inputs, rows_of(self._inputs, "opaque"))

    def _alias(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        name = node.params["identifier"]["name"]
        below = self.walk(node.children[0], outer)
        if not name.startswith(self._mark):
            return below
        alias = name.removeprefix(self._mark)
        origins: dict[int, Origins] = {number: {(alias, column): "direct"} for number, column in below.out}
        return Seen(below.out, origins, frozenset({alias}))

    def _leaf(self, node: Node) -> Seen:
        out = tuple(_named(node.nodes("output")))
        made = NOTHING if node.name in _PLAIN_LEAVES else self._here
        return Seen(out, {number: made for number, _ in out}, frozenset(one for one, _ in made if one is not None))

    def _only_child(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        return self.walk(node.children[0], outer)

    def _project(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        below = self.walk(node.children[0], outer)
        return self._selected(node.nodes("projectList"), below, self.values(below, outer), set())

    def _aggregate(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        below = self.walk(node.children[0], outer)
        values = self.values(below, outer)
        grouped = {origin for one in node.nodes("groupingExpressions") for origin in values.value(one)}
        return self._selected(node.nodes("aggregateExpressions"), below, values, grouped)

    def _selected(self, named: Sequence[Node], below: Seen, values: Values, indirect: set[Origin]) -> Seen:
        made = [(number, name, values.value(one)) for one in named for number, name in _named([one])]
        alone = replace(below, out=(), values={}).with_columns(made)
        return replace(alone, indirect=below.indirect | indirect | values.indirect)

    def _window(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        below = self.walk(node.children[0], outer)
        values = self.values(below, outer)
        spec = [*node.nodes("partitionSpec"), *node.nodes("orderSpec")]
        by = {origin for one in spec for origin in values.value(one)}
        made = [
            (number, name, values.value(one))
            for one in node.nodes("windowExpressions")
            for number, name in _named([one])
        ]
        return replace(below.with_columns(made), indirect=below.indirect | by | values.indirect)

    def _generate(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        below = self.walk(node.children[0], outer)
        values = self.values(below, outer)
        (generator,) = node.nodes("generator")
        made = lifted(values.value(generator), "transformed")
        columns = [(number, name, made) for number, name in _named(node.nodes("generatorOutput"))]
        return replace(below.with_columns(columns), indirect=below.indirect | values.indirect)

    def _expand(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        if not isinstance(node.params.get("projections"), list):
            return self._any(node, outer)  # Spark does not write them down in every case
        below = self.walk(node.children[0], outer)
        values = self.values(below, outer)
        rows = [[values.value(one) for one in row] for row in node.params["projections"]]
        columns = [
            (number, name, united(*(row[place] for row in rows)))
            for place, (number, name) in enumerate(_named(node.nodes("output")))
        ]
        alone = replace(below, out=(), values={}).with_columns(columns)
        return replace(alone, indirect=below.indirect | values.indirect)

    def _join(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        left, right = (self.walk(child, outer) for child in node.children)
        return self._joined(node, left, right, outer)

    def _lateral(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        left = self.walk(node.children[0], outer)
        (asked,) = node.nodes("right")
        right = self.walk(asked.params["plan"], {**outer, **left.values})
        return self._joined(node, left, right, outer)

    def _joined(self, node: Node, left: Seen, right: Seen, outer: Mapping[int, Origins]) -> Seen:
        both = Seen(
            left.out + right.out,
            {**left.values, **right.values},
            left.inputs | right.inputs,
            left.indirect | right.indirect,
        )
        values = self.values(both, outer)
        compared = {
            origin
            for name in ("condition", "asOfCondition")
            for one in node.nodes(name)
            for origin in values.value(one)
        }
        both = replace(both, indirect=both.indirect | compared | values.indirect)
        if not any(kind in str(node.params.get("joinType")) for kind in _ONE_SIDED):
            return both
        return replace(both, out=left.out, values=left.values, inputs=left.inputs)

    def _union(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        some = [self.walk(child, outer) for child in node.children]
        first = some[0]
        made = {
            number: united(*(one.values[one.out[place][0]] for one in some))
            for place, (number, _) in enumerate(first.out)
        }
        return Seen(
            first.out,
            made,
            frozenset().union(*(one.inputs for one in some)),
            frozenset().union(*(one.indirect for one in some)),
        )

    def _one_side(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        left, right = (self.walk(child, outer) for child in node.children)
        compared = {origin for number, _ in right.out for origin in right.values[number]}
        return replace(left, indirect=left.indirect | right.indirect | compared)

    def _with(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        for child in node.children:
            if child.name == "CTERelationDef":
                self._named[child.params["id"]] = child
        return self.walk(node.children[node.params["plan"]], outer)

    def _reference(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        number = node.params["cteId"]
        if number not in self._known:
            self._known[number] = self.walk(self._named[number], outer)
        return _as(node, self._known[number])

    def _loop(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        """Follow a query that reads itself until nothing is added any more."""
        anchor, recursion = node.children
        first = self.walk(anchor, outer)
        numbers = [one["id"] for one in node.params["outputAttrIds"]]
        out = tuple((number, name) for number, (_, name) in zip(numbers, first.out, strict=True))
        made = {number: first.values[theirs] for (number, _), (theirs, _) in zip(out, first.out, strict=True)}
        found = replace(first, out=out, values=made)
        for _ in range(_ROUNDS):
            self._loops[node.params["id"]] = found
            again = self.walk(recursion, outer)
            grown = {
                number: united(found.values[number], again.values[theirs])
                for (number, _), (theirs, _) in zip(out, again.out, strict=True)
            }
            before = found
            found = Seen(out, grown, found.inputs | again.inputs, found.indirect | again.indirect)
            if found == before:
                return found
        raise ValueError("a query that reads itself without coming to rest")

    def _loop_reference(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        return _as(node, self._loops[node.params["loopId"]])

    def _any(self, node: Node, outer: Mapping[int, Origins]) -> Seen:
        """Follow an operator that is not known: values it passes on stay what they are, new ones are opaque."""
        some = [self.walk(child, outer) for child in node.children]
        values: dict[int, Origins] = {}
        for one in some:
            values |= one.values
        inputs: frozenset[str] = frozenset().union(*(one.inputs for one in some))
        indirect: frozenset[Origin] = frozenset().union(*(one.indirect for one in some))
        listed = [one for name in _OUTPUTS for one in node.nodes(name)]
        out = tuple(_named(listed)) if listed else tuple(pair for one in some for pair in one.out)
        new = [number for number, _ in out if number not in values]
        seen = Seen(out, values, inputs, indirect)
        if new:
            made = rows_of(inputs, "opaque") or self._here or {(None, None): "opaque"}
            return replace(seen, values={**values, **dict.fromkeys(new, made)})
        if node.name in _NOT_ABOUT_ROWS:
            return seen
        asked = self.values(seen, outer)
        used = {origin for one in _expressions(node.params) for origin in asked.value(one)}
        return replace(seen, indirect=indirect | used | asked.indirect)


def _as(node: Node, found: Seen) -> Seen:
    """Return what is known under the numbers that a reference to it gives."""
    out = tuple(_named(node.nodes("output")))
    values = {one: found.values[theirs] for (one, _), (theirs, _) in zip(out, found.out, strict=True)}
    return Seen(out, values, found.inputs, found.indirect)


def _named(nodes: Sequence[Node]) -> Iterator[tuple[int, str]]:
    for one in nodes:
        if one.expr_id is None:
            raise ValueError(f"{one.name} has no number")
        yield one.expr_id, str(one.params.get("name"))


def _expressions(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _expressions(one)
    elif isinstance(value, list):
        for one in value:
            yield from _expressions(one)
