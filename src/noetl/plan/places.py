"""Where workers are: the name of a worker goes in, its node, zone and region come out. Nothing here knows what runs there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from noetl.errors import LocatorInvalid
from noetl.model.locator import SCHEME, parse_locator

_NODE_AND_PROCESS: Final = re.compile(r"([^/]+)/[0-9]+")
_ELSEWHERE: Final = "/lane/"
"""Part of the names of those who work inside Spark, on machines whose node nobody told."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node, and where it stands as far as that is told. Node names are unique in a cluster."""

    node: str
    zone: str | None = None
    region: str | None = None


@lru_cache(maxsize=4096)
def place_of(worker: str) -> Place | None:
    """Return where a worker is, by its locator or its `node/process`; None if its name does not tell."""
    if _ELSEWHERE in worker:
        return None
    if worker.startswith(SCHEME):
        try:
            told = parse_locator(worker)
        except LocatorInvalid:
            return None
        return None if told.node is None else Place(told.node, told.zone, told.region)
    short = _NODE_AND_PROCESS.fullmatch(worker)
    return None if short is None else Place(short[1])


def fullest(amounts: Iterable[tuple[Place | None, int]]) -> tuple[Place, int] | None:
    """Return the place that holds most bytes, and how many; of equals the one that was named first."""
    held: dict[Place, int] = {}
    for place, size in amounts:
        if place is not None:
            held[place] = held.get(place, 0) + size
    return max(held.items(), key=lambda one: one[1]) if held else None


def told_place(said: Any) -> Place | None:
    """Read a place out of an event; None if there is none."""
    if not isinstance(said, Mapping) or not isinstance(said.get("node"), str):
        return None
    return Place(said["node"], said.get("zone"), said.get("region"))
