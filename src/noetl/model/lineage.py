"""Which columns come from which: the edges between a dataset's columns and those of the inputs it is made of. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from noetl.model.canonical import digest_of

Kind = Literal["constant", "direct", "transformed", "aggregated", "opaque", "indirect"]
"""What became of a value on its way.

`direct`: it is the same, perhaps under another name or in another type. `transformed`: it was computed with others of its
row. `aggregated`: of many rows. `opaque`: by code that cannot be looked into. `constant`: there is no input to it.
`indirect`: it decides which rows there are, how they are grouped, joined or ordered, whatever the column.
"""
How = Literal["sql", "plan", "operator", "opaque", "unknown"]
"""Who said so: the tree of the SQL, Spark's analysed plan, the operator itself; nobody could, or nobody did."""
_STRENGTH: Final[dict[str, int]] = {"direct": 0, "transformed": 1, "aggregated": 2, "opaque": 3}


class Edge(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One influence. `source` is the alias of an input, or its dataset's id once it is recorded."""

    column: str | None
    """None stands for the dataset as a whole."""
    source: str | None
    source_column: str | None
    """None stands for all columns, or for the rows as such."""
    kind: Kind


class Lineage(msgspec.Struct, frozen=True, omit_defaults=True):
    """All influences on one dataset, each once, in a fixed order."""

    how: How
    edges: tuple[Edge, ...] = ()
    reason: str | None = None
    """Why it is not known, or not better."""

    @property
    def digest(self) -> str:
        """Equal digests tell equal lineage."""
        return digest_of([self.how, self.reason, [list(msgspec.structs.astuple(edge)) for edge in self.edges]])

    @property
    def is_known(self) -> bool:
        """Whether anybody could look."""
        return self.how != "unknown"

    def of(self, column: str) -> tuple[Edge, ...]:
        """Return what a column is made of."""
        return tuple(edge for edge in self.edges if edge.column == column)

    @property
    def indirect(self) -> tuple[Edge, ...]:
        """Return what decides about rows."""
        return tuple(edge for edge in self.edges if edge.column is None)


def lineage_of(
    how: How,
    columns: Mapping[str, Mapping[tuple[str | None, str | None], Kind]],
    indirect: Iterable[tuple[str | None, str | None]] = (),
    reason: str | None = None,
) -> Lineage:
    """Return lineage of columns with their sources; a column without any is a constant."""
    edges = {
        Edge(column, source, name, kind) for column, found in columns.items() for (source, name), kind in found.items()
    }
    edges |= {Edge(column, None, None, "constant") for column, found in columns.items() if not found}
    edges |= {Edge(None, source, name, "indirect") for source, name in indirect}
    return Lineage(how, tuple(sorted(edges, key=_order)), reason)


def opaque(how: How, columns: Iterable[str], sources: Iterable[str], reason: str | None = None) -> Lineage:
    """Return lineage that keeps nothing back: every column may come from all of every input."""
    found: dict[tuple[str | None, str | None], Kind] = dict.fromkeys(((one, None) for one in sources), "opaque")
    return lineage_of(how, {column: found or {(None, None): "opaque"} for column in columns}, reason=reason)


def stronger(one: Kind, other: Kind) -> Kind:
    """Return the kind of a way that has both on it."""
    return one if _STRENGTH[one] >= _STRENGTH[other] else other


def renamed(lineage: Lineage, datasets: Mapping[str, str]) -> Lineage:
    """Return lineage with ids of datasets in place of aliases; two aliases of one dataset become one."""
    best: dict[tuple[str | None, str | None, str | None], Kind] = {}
    for edge in lineage.edges:
        source = None if edge.source is None else datasets.get(edge.source, edge.source)
        key = (edge.column, source, edge.source_column)
        known = best.get(key)
        best[key] = edge.kind if known is None or edge.column is None else stronger(known, edge.kind)
    edges = tuple(sorted((Edge(*key, kind) for key, kind in best.items()), key=_order))
    return Lineage(lineage.how, edges, lineage.reason)


def completed(
    lineage: Lineage,
    columns: Sequence[str],
    parted: Mapping[str, Sequence[str]],
    sifted: Iterable[tuple[str, str]],
) -> Lineage:
    """Return lineage of exactly these columns.

    Those that are missing were filled in from the partition's name, which comes from the inputs that are `parted` by the
    same column. Columns of inputs that decided what was read of them (`sifted`) are indirect.
    """
    told = {edge.column for edge in lineage.edges}
    edges = [edge for edge in lineage.edges if edge.column is None or edge.column in columns]
    for column in columns:
        if column not in told:
            sources = parted.get(column) or ()
            edges += [Edge(column, source, column, "direct") for source in sources]
            edges += [] if sources else [Edge(column, None, None, "constant")]
    edges += [Edge(None, source, name, "indirect") for source, name in sifted]
    return Lineage(lineage.how, tuple(sorted(set(edges), key=_order)), lineage.reason)


def joined(standing: Lineage | None, new: Lineage) -> Lineage:
    """Return what holds when tasks of one generation tell different things: nothing that was known is forgotten.

    The result is `standing` itself when `new` adds nothing.
    """
    if standing is None or (new.is_known and not standing.is_known):
        return new
    if not new.is_known or set(new.edges) <= set(standing.edges):
        return standing
    how = new.how if new.how == standing.how else "plan"
    united = {*standing.edges, *new.edges}
    sourced = {edge.column for edge in united if edge.kind != "constant"}
    kept = [edge for edge in united if edge.kind != "constant" or edge.column not in sourced]
    result = renamed(Lineage(how, tuple(kept), new.reason or standing.reason), {})
    return standing if result.edges == standing.edges else result


def _order(edge: Edge) -> tuple[bool, str, str, str, str]:
    return edge.column is None, edge.column or "", edge.source or "", edge.source_column or "", edge.kind
