"""The way of data as a tree: a dataset or a column goes in, what it is made of, or what is made of it, comes out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from noetl.model.lineage import Edge, Lineage
from noetl.pipelines.datasets.lineage import Graph, LineageReader, Made, Subject

Direction = Literal["upstream", "downstream"]
DEPTH: Final = 20
"""Steps that are followed unless somebody asks for another number."""
HIDDEN: Final = "a dataset that you may not read"
LEAVES: Final = 5_000
"""How much of a tree is followed: ways that meet again are followed each time."""


class Decides(msgspec.Struct, frozen=True, kw_only=True):
    """A column that rows are chosen, joined, grouped or ordered by."""

    dataset: str
    dataset_uuid: str
    column: str | None


class Leaf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A dataset or a column, and what lies beyond it."""

    dataset: str | None
    """None stands for what is no dataset: a constant, or data from outside."""
    dataset_uuid: str | None = None
    column: str | None = None
    kind: str | None = None
    """What becomes of a value between here and the one before."""
    dataset_version: str | None = None
    made_by: str | None = None
    how: str | None = None
    reason: str | None = None
    indirect: tuple[Decides, ...] = ()
    """Columns that decide which rows there are."""
    next: tuple[Leaf, ...] = ()
    more: bool = False
    """Whether there is more that was not followed."""


class Follow:
    """Follows the lineage of a graph."""

    def __init__(self, reader: LineageReader, graph: Graph, direction: Direction, depth: int = DEPTH) -> None:
        self._reader = reader
        self._graph = graph
        self._direction = direction
        self._depth = depth
        self._known: dict[str, Lineage | None] = {}
        self._leaves = 0

    async def tree(self, subject: Subject) -> Leaf:
        """Return all that lies before or behind something."""
        return await self._leaf(subject.dataset_uuid, subject.column, None, self._depth, frozenset())

    async def _leaf(
        self,
        dataset: str,
        column: str | None,
        kind: str | None,
        depth: int,
        path: frozenset[tuple[str, str | None]],
        *,
        ends: bool = False,
    ) -> Leaf:
        made = self._graph.made.get(dataset)
        lineage = None if made is None else await self._lineage(made)
        here = (dataset, column)
        onward = [] if ends or here in path else await self._onward(dataset, column, made, lineage)
        self._leaves += 1
        goes_on = depth > 0 and self._leaves < LEAVES
        following = [await self._next(one, depth - 1, path | {here}) for one in onward] if goes_on else []
        return Leaf(
            dataset=self._graph.name(dataset),
            dataset_uuid=dataset,
            column=column,
            kind=kind,
            dataset_version=None if made is None else made.dataset_version,
            made_by=None if made is None else f"{made.dag}.{made.job}",
            how=None if lineage is None else lineage.how,
            reason=None if lineage is None else lineage.reason,
            indirect=self._indirect(lineage),
            next=tuple(following),
            more=bool(onward) and not goes_on,
        )

    async def _next(self, edge: _Way, depth: int, path: frozenset[tuple[str, str | None]]) -> Leaf:
        if edge.dataset is None:
            return Leaf(dataset=None, kind=edge.kind)
        return await self._leaf(edge.dataset, edge.column, edge.kind, depth, path, ends=edge.ends)

    async def _onward(self, dataset: str, column: str | None, made: Made | None, lineage: Lineage | None) -> list[_Way]:
        if self._direction == "downstream":
            ways = [await self._read_by(reader, dataset, column) for reader in self._graph.readers(dataset)]
            return [way for some in ways for way in some]
        if made is None:
            return []
        if column is None:
            return [_Way(one, None, None) for one in sorted(made.inputs, key=self._graph.name)]
        edges = () if lineage is None else lineage.of(column)
        if not edges:
            # Nothing was told of it: then it may come from all that its job reads.
            return [_Way(one, None, "opaque") for one in sorted(made.inputs, key=self._graph.name)]
        return [_Way(edge.source, edge.source_column, edge.kind) for edge in edges]

    async def _read_by(self, reader: Made, dataset: str, column: str | None) -> list[_Way]:
        if column is None:
            return [_Way(reader.dataset_uuid, None, None)]
        lineage = await self._lineage(reader)
        if lineage is None:
            return [_Way(reader.dataset_uuid, None, "opaque")]
        used = [edge for edge in lineage.edges if _uses(edge, dataset, column)]
        return [_Way(reader.dataset_uuid, edge.column, edge.kind, ends=edge.column is None) for edge in used]

    async def _lineage(self, made: Made) -> Lineage | None:
        if made.dataset_version not in self._known:
            self._known[made.dataset_version] = await self._reader.lineage(made.dataset_version, self._graph.mark)
        return self._known[made.dataset_version]

    def _indirect(self, lineage: Lineage | None) -> tuple[Decides, ...]:
        return tuple(
            Decides(dataset=self._graph.name(edge.source), dataset_uuid=edge.source, column=edge.source_column)
            for edge in (lineage.indirect if lineage is not None else ())
            if edge.source is not None
        )


class _Way(msgspec.Struct, frozen=True):
    """One step from a dataset or column to another."""

    dataset: str | None
    column: str | None
    kind: str | None
    ends: bool = False
    """Whether it is not followed further: what decides about rows touches all that comes after."""


def _uses(edge: Edge, dataset: str, column: str) -> bool:
    return edge.source == dataset and edge.source_column in (column, None)


def datasets_in(tree: Leaf) -> set[str]:
    """Return the datasets that a tree speaks of."""
    own = {one.dataset_uuid for one in tree.indirect} | ({tree.dataset_uuid} if tree.dataset_uuid else set())
    return own.union(*map(datasets_in, tree.next))


def only(tree: Leaf, allowed: Collection[str]) -> Leaf:
    """Return a tree that tells nothing of other datasets than these, not even their names."""
    if tree.dataset_uuid is not None and tree.dataset_uuid not in allowed:
        return Leaf(dataset=HIDDEN, kind=tree.kind)
    decides = tuple(one for one in tree.indirect if one.dataset_uuid in allowed)
    return msgspec.structs.replace(tree, indirect=decides, next=tuple(only(one, allowed) for one in tree.next))
