"""What may become of a field: dropped, hashed, put into buckets, added up, or, for words known beforehand, kept."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from noetl.errors import InputError
from noetl.services.curated.facts import Kind

Unit = Literal["hour", "day", "week", "month"]
HOUR: Final = 3_600


@dataclass(frozen=True)
class Drop:
    """The field is not read at all."""


@dataclass(frozen=True)
class Keep:
    """The word itself; only of a category, whose words are listed in code."""


@dataclass(frozen=True)
class Hash:
    """A digest under the installation's secret: equal for equal values here, and nowhere else."""


@dataclass(frozen=True)
class Period:
    """The hour, day, week or month (in UTC) that a time lies in."""

    unit: Unit


@dataclass(frozen=True)
class Bucket:
    """The bucket that a number lies in; an edge belongs to the bucket above it."""

    edges: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_edges(self.edges)


@dataclass(frozen=True)
class Size:
    """The bucket that an organization's total of a number lies in, so that organizations are counted by size."""

    edges: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_edges(self.edges)


@dataclass(frozen=True)
class Total:
    """The sum of a number over a whole group, to a few significant digits."""

    digits: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 3:
            raise InputError(f"a total is told to 1, 2 or 3 digits, not {self.digits}")


Rule = Drop | Keep | Hash | Period | Bucket | Size | Total

FITTING: Final[dict[Kind, tuple[type, ...]]] = {
    "time": (Drop, Period),
    "number": (Drop, Bucket, Size, Total),
    "category": (Drop, Keep, Hash),
    "identity": (Drop, Hash),
    "text": (Drop, Hash),
}
"""The rules that fields of each kind may have."""


def told(rule: Rule) -> str:
    """Return a rule in words."""
    match rule:
        case Period():
            return f"{rule.unit} it lies in"
        case Bucket():
            return f"bucket with the edges {_listed(rule.edges)}"
        case Size():
            return f"bucket of the organization's total with the edges {_listed(rule.edges)}"
        case Total():
            return f"sum, to {rule.digits} digits"
        case Hash():
            return "keyed hash"
        case Keep():
            return "kept, one of a closed list"
        case Drop():
            return "dropped"


def _listed(edges: tuple[int, ...]) -> str:
    return ", ".join(f"{edge:,}" for edge in edges)


def _check_edges(edges: tuple[int, ...]) -> None:
    if not edges or any(low >= high for low, high in pairwise(edges)):
        raise InputError(f"{edges} are no edges of buckets: whole numbers, each larger than the one before")
