"""What a SELECT reads from, as far as its columns are concerned: names go in, where their values come from comes out.

Names are compared as Spark does, without regard to case. A relation may have columns that cannot be listed; they all
have the same origins then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from noetl.language.columns.origins import NOTHING, NotUnderstood, Origin, Origins, lifted, united

Named = tuple[str, Origins]


@dataclass(frozen=True)
class Relation:
    """A table, a query or a function that gives rows."""

    columns: tuple[Named, ...] = ()
    rest: Origins | None = None
    """Origins of columns that are there besides; None if all are listed."""
    inputs: frozenset[str] = frozenset()
    indirect: frozenset[Origin] = frozenset()
    """What decides which rows it has."""

    def find(self, name: str) -> Origins | None:
        """Return where a column comes from; None if there is none of that name."""
        found = self.listed(name)
        return self.rest if found is None else found

    def listed(self, name: str) -> Origins | None:
        """Return the same, but only of columns that are listed."""
        found = [origins for one, origins in self.columns if one.lower() == name.lower()]
        return united(*found) if found else None

    def with_names(self, names: Sequence[str]) -> Relation:
        """Return the relation with other column names, as `t(a, b)` gives them."""
        if not names:
            return self
        if self.rest is not None:
            return replace(self, columns=tuple((name, self.rest) for name in names), rest=None)
        if len(names) != len(self.columns):
            raise NotUnderstood(f"{len(names)} names for {len(self.columns)} columns")
        renamed = tuple((name, origins) for name, (_, origins) in zip(names, self.columns, strict=True))
        return replace(self, columns=renamed)


@dataclass
class Scope:
    """What names mean inside of one SELECT."""

    outer: Scope | None = None
    relations: dict[str, Relation] = field(default_factory=dict)
    merged: dict[str, Origins] = field(default_factory=dict)
    """Columns that a join made one, by lower-case name."""
    aliases: dict[str, Origins] = field(default_factory=dict)
    """Columns of the SELECT so far, which later ones may use."""
    bound: tuple[str, ...] = ()
    """Parameters of the lambdas around."""

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs whose rows are read."""
        return frozenset(one for relation in self.relations.values() for one in relation.inputs)

    def add(self, name: str, relation: Relation) -> None:
        """Read from one more relation."""
        if name.lower() in self.relations:
            raise NotUnderstood(f"two relations are called {name}")
        self.relations[name.lower()] = relation

    def column(self, parts: Sequence[str]) -> Origins:
        """Return where the value of a name comes from, whose parts are qualifier, column and fields of it."""
        found = self._local(parts)
        scope = self.outer
        while found is None and scope is not None:
            found, scope = scope._local(parts), scope.outer
        if found is None:
            raise NotUnderstood(f"{'.'.join(parts)} is no column of what is read")
        return found

    def output(self, parts: Sequence[str]) -> Origins:
        """Return the same for a name after the SELECT, where its own columns come first."""
        if len(parts) == 1 and parts[0].lower() in self.aliases:
            return self.aliases[parts[0].lower()]
        return self.column(parts)

    def star(self, qualifier: str | None, left_out: Iterable[str] = ()) -> Relation:
        """Return the columns that a star stands for."""
        gone = {name.lower() for name in left_out}
        if qualifier is not None:
            relation = self.relations.get(qualifier.lower())
            if relation is None:
                return Relation(rest=lifted(self.column([qualifier]), "transformed"))
            return _without(relation, gone)
        columns: list[Named] = list(self.merged.items())
        rest: Origins | None = None
        for relation in self.relations.values():
            columns += [one for one in relation.columns if one[0].lower() not in self.merged]
            rest = relation.rest if rest is None else united(rest, relation.rest or NOTHING)
        return _without(Relation(tuple(columns), rest), gone)

    def merge(self, names: Iterable[str], right: Relation, side: str) -> frozenset[Origin]:
        """Make columns of both sides of a join one; returns all that the join compares."""
        compared: set[Origin] = set()
        for name in names:
            mine, theirs = self.column([name]), right.find(name)
            if theirs is None:
                raise NotUnderstood(f"{name} is no column of both sides of a join")
            compared |= mine.keys() | theirs.keys()
            both = lifted(united(mine, theirs), "transformed")
            self.merged[name.lower()] = theirs if side == "RIGHT" else both if side == "FULL" else mine
        return frozenset(compared)

    def common(self, right: Relation) -> list[str]:
        """Return the columns that both sides of a join have."""
        if right.rest is not None or any(one.rest is not None for one in self.relations.values()):
            raise NotUnderstood("a natural join of columns that cannot be listed")
        mine = {name.lower() for one in self.relations.values() for name, _ in one.columns}
        return [name for name, _ in right.columns if name.lower() in mine]

    def _local(self, parts: Sequence[str]) -> Origins | None:
        first = parts[0].lower()
        if first in self.bound:
            return NOTHING
        if len(parts) > 1 and first in self.relations:
            found = self.relations[first].find(parts[1])
            if found is not None:
                return found if len(parts) == 2 else lifted(found, "transformed")
        found = self.merged.get(first)
        if found is None:
            listed = [origins for one in self.relations.values() if (origins := one.listed(first)) is not None]
            unlisted = [one.rest for one in self.relations.values() if one.rest is not None]
            found = united(*listed) if listed else self.aliases.get(first)
            if found is None and unlisted:
                found = united(*unlisted)
        if found is None or len(parts) == 1:
            return found
        return lifted(found, "transformed")


def tables_of(inputs: Mapping[str, Sequence[str]]) -> dict[str, Relation]:
    """Return the inputs as relations, by lower-case name."""
    return {
        alias.lower(): Relation(
            columns=tuple((name, {(alias, name): "direct"}) for name in columns), inputs=frozenset({alias})
        )
        for alias, columns in inputs.items()
    }


def _without(relation: Relation, gone: set[str]) -> Relation:
    return replace(relation, columns=tuple(one for one in relation.columns if one[0].lower() not in gone))
