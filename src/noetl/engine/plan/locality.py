"""Where workers are and how near to its inputs work is taken: places and waiting time go in, yes or no comes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from noetl.errors import LocatorInvalid
from noetl.model.locator import SCHEME, parse_locator

Distance = Literal["node", "zone", "region", "any"]
DISTANCES: Final[tuple[Distance, ...]] = ("node", "zone", "region", "any")
NEVER: Final = 1e9
"""Seconds after which work that is too far for a claim opens for it: about thirty years."""

T = TypeVar("T")


class Wish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a claim would like its work to come from, and the farthest it takes any from."""

    prefer_node: str | None = None
    prefer_zone: str | None = None
    prefer_region: str | None = None
    max_distance: Distance = "any"


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long work is left to those who are near: to its node first, then to its zone, then to its region."""

    preference: Distance = "zone"
    """The last of these that has a time of its own; after it anybody may come. `any` leaves nothing to anybody."""
    wait_seconds: float = 0.2

    def opens_after(self, distance: Distance) -> float:
        """Return how long work must have waited until somebody at this distance may take it."""
        steps = 0 if self.preference == "any" else DISTANCES.index(self.preference) + 1
        return self.wait_seconds * min(DISTANCES.index(distance), steps)

    @property
    def longest(self) -> float:
        """Seconds after which anybody may take anything."""
        return self.opens_after("any")


class Claimant(msgspec.Struct, frozen=True):
    """Who asks for work: where it is, as far as that is known, and how far it goes."""

    node: str | None = None
    zone: str | None = None
    region: str | None = None
    max_distance: Distance = "any"

    @property
    def is_placed(self) -> bool:
        """Whether anything is known of where it is."""
        return (self.node, self.zone, self.region) != (None, None, None)


ANYWHERE: Final = Claimant()


def claimant(worker: str, wish: Wish | None = None) -> Claimant:
    """Return who asks: what the claim wishes, else what the worker's name tells."""
    place = place_of(worker) or Place("")
    if wish is None:
        return Claimant(place.node or None, place.zone, place.region)
    return Claimant(
        wish.prefer_node or place.node or None,
        wish.prefer_zone or place.zone,
        wish.prefer_region or place.region,
        wish.max_distance,
    )


def distance(who: Claimant, near: Place) -> Distance:
    """Return how far a claimant is from where inputs lie; a zone or region that nobody names is one like any other."""
    if who.node == near.node:
        return "node"
    if not who.is_placed or who.region != near.region:
        return "any"
    return "zone" if who.zone == near.zone else "region"


@lru_cache(maxsize=4096)
def opening(who: Claimant, patience: Patience) -> tuple[float, float, float, float]:
    """Return after how many seconds work opens for a claimant, by its distance: node, zone, region, any."""
    farthest = DISTANCES.index(who.max_distance)
    node, zone, region, anywhere = (
        patience.opens_after(one) if number <= farthest else NEVER for number, one in enumerate(DISTANCES)
    )
    return (node, zone, region, anywhere) if who.is_placed else (anywhere, anywhere, anywhere, anywhere)


def may_take(who: Claimant, near: Place | None, waited: float, patience: Patience) -> bool:
    """Tell whether a claimant may take work that has waited so long; what lies nowhere is for everybody."""
    if near is None:
        return True
    return waited >= opening(who, patience)[DISTANCES.index(distance(who, near))]


def closest(who: Claimant, work: Iterable[tuple[Place | None, T]]) -> T | None:
    """Return the nearest of some work that a claimant goes far enough for; of equals the first.

    What lies nowhere comes last and is for everybody.
    """
    ranked = [(len(DISTANCES) if near is None else DISTANCES.index(distance(who, near)), one) for near, one in work]
    farthest = DISTANCES.index(who.max_distance)
    able = [(rank, one) for rank, one in ranked if rank <= farthest or rank == len(DISTANCES)]
    return min(able, key=lambda found: found[0])[1] if able else None


def nearest(waiting: Iterable[tuple[Claimant, T]], near: Place, patience: Patience) -> T | None:
    """Return the nearest of those who may take work the moment it is there; of equals the first."""
    best, found = len(DISTANCES), None
    for who, one in waiting:
        rank = DISTANCES.index(distance(who, near))
        if rank < best and may_take(who, near, 0.0, patience):
            best, found = rank, one
            if rank == 0:
                break
    return found


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
