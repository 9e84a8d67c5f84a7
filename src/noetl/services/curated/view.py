"""A curated view: a fact, one rule for each of its fields, and the smallest group that is told. A gap refuses the view."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from noetl.errors import InputError
from noetl.services.curated.facts import Fact, check_name
from noetl.services.curated.rules import FITTING, Bucket, Hash, Keep, Period, Rule, Size, Total

KEYS: Final = (Keep, Hash, Period, Bucket, Size)
"""The rules that make groups."""
_FEWEST: Final = 3
"""Of two, each knows the other by subtracting itself."""
_MOST_DAYS: Final = 366


class Uncurated(InputError):
    """A view that would let out what it must not, with what is missing."""

    code = "view_uncurated"


@dataclass(frozen=True)
class Minimum:
    """What a group needs to be told at all."""

    organizations: int = 5
    tenants: int = 3
    rows: int = 10
    share: float = 0.9
    """The largest part of a group's numbers that may come from one tenant."""


@dataclass(frozen=True)
class CuratedView:
    """What operators may read of all tenants together."""

    name: str
    sentence: str
    fact: Fact
    rules: Mapping[str, Rule] = field(hash=False)
    count: str
    """The column that holds the number of rows of a group."""
    version: int = 1
    days: int = 30
    """How far back it looks, in whole days of UTC besides today."""
    minimum: Minimum = Minimum()
    round_to: int = 5
    """Numbers of rows and organizations are rounded to multiples of this."""

    def __post_init__(self) -> None:
        check_name(self.name, "a view")
        problems = [*self._rule_problems(), *self._bound_problems()]
        if problems:
            raise Uncurated(f"curated view {self.name}: {'; '.join(problems)}")

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that make groups, in the order of the rules."""
        return tuple(name for name, rule in self.rules.items() if isinstance(rule, KEYS))

    @property
    def totals(self) -> tuple[str, ...]:
        """The fields that are added up over groups."""
        return tuple(name for name, rule in self.rules.items() if isinstance(rule, Total))

    @property
    def summed(self) -> tuple[str, ...]:
        """The fields of which each organization's sum is needed."""
        return tuple(name for name, rule in self.rules.items() if isinstance(rule, Total | Size))

    @property
    def columns(self) -> tuple[str, ...]:
        """What a row of the view has."""
        return (*self.keys, self.count, "organizations", *self.totals)

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole declaration, by which a read tells what the view was at that time."""
        return hashlib.sha256(orjson.dumps(declared(self), option=orjson.OPT_SORT_KEYS)).hexdigest()

    def _rule_problems(self) -> list[str]:
        fields = self.fact.fields
        found = [f"field {name} of {self.fact.name} has no rule" for name in fields if name not in self.rules]
        for name, rule in self.rules.items():
            if name not in fields:
                found.append(f"{self.fact.name} has no field {name}")
                continue
            kind = fields[name].kind
            if not isinstance(rule, FITTING[kind]):
                fitting = " or ".join(one.__name__ for one in FITTING[kind])
                found.append(f"field {name} is of the kind {kind} and cannot have {_named(rule)}, only {fitting}")
        names = [*self.keys, self.count, "organizations", *self.totals]
        found += [f"two columns are called {name}" for name in sorted({one for one in names if names.count(one) > 1})]
        return found

    def _bound_problems(self) -> list[str]:
        own = self.minimum
        found = []
        if own.organizations < _FEWEST or own.tenants < _FEWEST:
            found.append(f"a group needs at least {_FEWEST} organizations of {_FEWEST} tenants")
        if own.rows < own.organizations:
            found.append("a group needs at least as many rows as organizations")
        if not 0 < own.share < 1:
            found.append("the share of one tenant must lie between 0 and 1")
        if not 2 <= self.round_to <= own.rows:
            found.append("numbers must be rounded to multiples of 2 or more, up to the rows a group needs")
        if not 1 <= self.days <= _MOST_DAYS:
            found.append(f"it may look back between 1 and {_MOST_DAYS} days")
        if self.version < 1:
            found.append("its version is 1 or more")
        try:
            check_name(self.count, "a column")
        except InputError as problem:
            found.append(problem.message)
        return found


def declared(view: CuratedView) -> dict[str, Any]:
    """Return the whole declaration as plain values."""
    fact = view.fact
    return {
        "name": view.name,
        "version": view.version,
        "sentence": view.sentence,
        "fact": {
            "name": fact.name,
            "types": list(fact.types),
            "fields": {
                name: {"kind": one.kind, "places": list(one.places), "values": list(one.values)}
                for name, one in fact.fields.items()
            },
        },
        "rules": {name: {"rule": _named(rule), **_options(rule)} for name, rule in view.rules.items()},
        "columns": list(view.columns),
        "count": view.count,
        "days": view.days,
        "minimum": _options(view.minimum),
        "round_to": view.round_to,
    }


def _named(rule: object) -> str:
    return type(rule).__name__.lower()


def _options(thing: Any) -> dict[str, Any]:
    return {name: list(one) if isinstance(one, tuple) else one for name, one in vars(thing).items()}
