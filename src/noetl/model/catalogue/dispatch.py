"""A dispatch over event types: every declared type has a rule or, as the catalogue says, no effect; others are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from noetl.errors import Unsupported
from noetl.model.catalogue import BY_NAME
from noetl.model.event_type import OPEN_PREFIX

T = TypeVar("T")


class ByType(dict[str, T | None]):
    """A rule for each type that needs one, None for every other declared type and for the user's own."""

    def __missing__(self, name: str) -> None:
        if not name.startswith(OPEN_PREFIX):
            raise undeclared(name)


def by_type(rules: Mapping[str, T], types: Iterable[str]) -> ByType[T]:
    """Return a dispatch over all declared types from rules that name exactly those that need one."""
    needed = exactly(rules, types)
    return ByType({name: needed.get(name) for name in BY_NAME})


def exactly(rules: Mapping[str, T], types: Iterable[str]) -> Mapping[str, T]:
    """Return rules that name each of these types and no other; refuse them otherwise."""
    wanted = frozenset(types)
    wrong = sorted(rules.keys() ^ wanted)
    if wrong:
        lacking = [name for name in wrong if name in wanted]
        raise ValueError(
            f"no rule for {', '.join(lacking)}"
            if lacking
            else f"rules for {', '.join(wrong)}, of which the catalogue says that they have no effect here"
        )
    return rules


def undeclared(name: str) -> Unsupported:
    """Say that a type is not in the catalogue."""
    return Unsupported(
        f"there is no event type {name!r} in this build", hint="upgrade NoETL: the event was written by a newer one"
    )
