"""What a fact dataset is: its name, its columns with a sentence each, and the SQL over the views before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DAY: Final = "day"
"""The partition column of every fact dataset."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, its type as Spark spells it, and what it says."""

    name: str
    type: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact dataset. `query` may read `e` (parsed events) and the facts listed before it, by their names."""

    name: str
    sentence: str
    columns: tuple[Column, ...]
    query: str

    @property
    def schema(self) -> str:
        """The columns as Spark DDL, in their order."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def select(self) -> str:
        """The query with every column in its place and of its type."""
        named = ", ".join(f"CAST({column.name} AS {column.type}) AS {column.name}" for column in self.columns)
        return f"SELECT {named} FROM ({self.query})"  # noqa: S608 - ours


def columns(*spelled: str) -> tuple[Column, ...]:
    """Read columns from lines of `name type: sentence`."""
    found = []
    for line in spelled:
        named, _, sentence = line.partition(": ")
        name, _, kind = named.partition(" ")
        found.append(Column(name, kind, sentence))
    return tuple(found)


OWNER: Final = (
    "tenant_id string: The tenant.",
    "organization_id string: The organization.",
)
EXECUTION_DAY: Final = "day date: The day (UTC) on which the execution was asked for."
"""Begins and ends the columns of facts about one execution."""
