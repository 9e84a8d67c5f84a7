"""Work is done near its inputs and nobody starves: the rule itself, and a thousand simulated workers that follow it."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pytest

from noetl.engine.plan.locality import (
    DISTANCES,
    NEVER,
    Claimant,
    Distance,
    Patience,
    Place,
    Wish,
    claimant,
    closest,
    distance,
    fullest,
    may_take,
    nearest,
    opening,
    place_of,
)
from noetl.runtime.locality import patience_of, process_locator, remote_name, wish_of
from noetl.runtime.settings.declaration import Settings

ZONES, NODES_PER_ZONE, WORKERS_PER_NODE = ("a", "b", "c"), 25, 13
"""975 workers on 75 nodes, and 25 more that came later: a thousand."""
WORK_SECONDS = 0.5
PATIENCE = Patience(preference="zone", wait_seconds=0.2)


def nodes() -> list[Place]:
    return [Place(f"{zone}{number}", zone, "r") for zone in ZONES for number in range(NODES_PER_ZONE)]


def workers() -> list[Claimant]:
    every = [Claimant(place.node, place.zone, place.region) for place in nodes() for _ in range(WORKERS_PER_NODE)]
    return every + every[: 1000 - len(every)]


@dataclass
class Outcome:
    """How far from their inputs items were done, how long they waited, and when the last one ended."""

    placed: Counter[Distance] = field(default_factory=Counter)
    waited: list[float] = field(default_factory=list)
    makespan: float = 0.0

    def share(self, *distances: Distance) -> float:
        return sum(self.placed[one] for one in distances) / sum(self.placed.values())


class Simulation:
    """Hands items out as the dispatcher does: at once to the nearest who waits, else in order to whoever may take them."""

    def __init__(self, arrivals: list[tuple[float, Place]], patience: Patience, seed: int) -> None:
        self._random = random.Random(seed)
        self._patience = patience
        self._workers = workers()
        self._slow: frozenset[str] = frozenset()
        order = list(range(len(self._workers)))
        self._random.shuffle(order)
        self._idle = dict.fromkeys(order)
        self._pending: dict[int, tuple[float, Place]] = {}
        self._numbers = count()
        self._events: list[tuple[float, int, str, object]] = []
        self.outcome = Outcome()
        for at, near in arrivals:
            self._later(at, "item", near)

    def without(self, gone: frozenset[str], slow: frozenset[str] = frozenset()) -> Simulation:
        """Let all workers of some nodes be gone, and those of others take a hundred times as long."""
        self._idle = {number: None for number in self._idle if self._workers[number].node not in gone}
        self._slow = slow
        return self

    def run(self) -> Outcome:
        while self._events:
            now, _, kind, what = heapq.heappop(self._events)
            if kind == "item":
                assert isinstance(what, Place)
                self._issued(now, what)
            elif kind == "free":
                assert isinstance(what, int)
                self._idle[what] = None
                self._look(now, what)
            elif what in self._pending:
                assert isinstance(what, int)
                self._opened(now, what)
        assert not self._pending, "an item that nobody takes would wait for ever"
        return self.outcome

    def _later(self, at: float, kind: str, what: object) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), kind, what))

    def _issued(self, now: float, near: Place) -> None:
        taker = nearest(((self._workers[number], number) for number in self._idle), near, self._patience)
        if taker is not None:
            self._take(now, taker, now, near)
            return
        item = next(self._numbers)
        self._pending[item] = (now, near)
        for after in {self._patience.opens_after(one) for one in DISTANCES} - {0.0}:
            self._later(now + after, "opens", item)

    def _opened(self, now: float, item: int) -> None:
        since, near = self._pending[item]
        # As exact as the clock of a database, which does not count in binary fractions of a second.
        waited = round(now - since, 6)
        for number in self._idle:
            if may_take(self._workers[number], near, waited, self._patience):
                del self._pending[item]
                self._take(now, number, since, near)
                return

    def _look(self, now: float, number: int) -> None:
        who = self._workers[number]
        for item, (since, near) in self._pending.items():
            if may_take(who, near, round(now - since, 6), self._patience):
                del self._pending[item]
                self._take(now, number, since, near)
                return

    def _take(self, now: float, number: int, since: float, near: Place) -> None:
        del self._idle[number]
        who = self._workers[number]
        self.outcome.placed[distance(who, near)] += 1
        self.outcome.waited.append(now - since)
        seconds = self._random.uniform(0.5, 1.5) * WORK_SECONDS * (100 if who.node in self._slow else 1)
        self.outcome.makespan = max(self.outcome.makespan, now + seconds)
        self._later(now + seconds, "free", number)


def steady(items: int, per_second: float, seed: int) -> list[tuple[float, Place]]:
    choose, every, now = random.Random(seed), nodes(), 0.0
    arrivals = []
    for _ in range(items):
        now += choose.expovariate(per_second)
        arrivals.append((now, choose.choice(every)))
    return arrivals


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_workers_find_nearly_all_work_on_its_node(seed: int) -> None:
    """INV-111."""
    arrivals = steady(1_500, 0.6 * 1000 / WORK_SECONDS, seed)
    near = Simulation(arrivals, PATIENCE, seed).run()
    blind = Simulation(arrivals, Patience(preference="any"), seed).run()
    assert sum(near.placed.values()) == 1_500
    assert near.share("node") > 0.9
    assert near.share("node", "zone") > 0.99
    assert max(near.waited) <= PATIENCE.longest + 1e-6
    assert near.share("node") >= blind.share("node")


@pytest.mark.parametrize("seed", [3, 4])
def test_nothing_starves_where_the_workers_of_its_node_are_gone_or_slow(seed: int) -> None:
    """INV-111."""
    every = [place.node for place in nodes()]
    gone, slow = frozenset(every[:15]), frozenset(every[30:45])
    arrivals = steady(1_000, 0.35 * 1000 / WORK_SECONDS, seed)
    found = Simulation(arrivals, PATIENCE, seed).without(gone, slow).run()
    assert len(found.waited) == 1_000
    # Somebody is always idle, so an item waits for being left to the near and for nothing else.
    assert max(found.waited) <= PATIENCE.longest + 1e-6
    assert found.share("node", "zone") > 0.95


def test_a_whole_zone_that_is_gone_costs_its_items_no_more_than_the_bound() -> None:
    gone = frozenset(place.node for place in nodes() if place.zone == "b")
    found = Simulation(steady(600, 500, 5), PATIENCE, 5).without(gone).run()
    late = sorted(found.waited)[-found.placed["region"] :]
    assert found.placed["region"] > 150
    assert late[0] == pytest.approx(PATIENCE.longest, abs=1e-6)
    assert late[-1] == pytest.approx(PATIENCE.longest, abs=1e-6)


def test_many_items_of_one_node_are_spread_over_all_the_others() -> None:
    hot = [(0.0, nodes()[0])] * 400
    near, blind = (Simulation(hot, patience, 6).run() for patience in (PATIENCE, Patience(preference="any")))
    assert near.makespan <= blind.makespan + PATIENCE.longest + 1.5 * WORK_SECONDS
    assert near.placed["node"] > blind.placed["node"] - 5


def test_the_order_of_leaving_work_to_others_is_node_then_zone_then_region_then_anybody() -> None:
    who = Claimant("n1", "z1", "r1")
    near = [Place("n1", "z1", "r1"), Place("n2", "z1", "r1"), Place("n3", "z2", "r1"), Place("n4", "z1", "r2")]
    assert [distance(who, place) for place in near] == list(DISTANCES)
    for preference, opens in {
        "any": (0.0, 0.0, 0.0, 0.0),
        "node": (0.0, 1.0, 1.0, 1.0),
        "zone": (0.0, 1.0, 2.0, 2.0),
        "region": (0.0, 1.0, 2.0, 3.0),
    }.items():
        patience = Patience(preference=preference, wait_seconds=1.0)  # type: ignore[arg-type]
        assert opening(who, patience) == opens
        for place, after in zip(near, opens, strict=True):
            assert may_take(who, place, after, patience)
            assert not after or not may_take(who, place, after - 0.01, patience)
        assert may_take(who, None, 0.0, patience)


def test_a_claim_takes_nothing_from_farther_than_it_goes() -> None:
    near = Place("n1", "z1", "r1")
    other = Claimant("n2", "z1", "r1", "node")
    assert not may_take(other, near, NEVER - 1, PATIENCE)
    assert may_take(Claimant("n1", max_distance="node"), near, 0.0, PATIENCE)
    assert may_take(Claimant("n2", "z1", "r1", "zone"), near, 0.2, PATIENCE)
    assert may_take(other, None, 0.0, PATIENCE)
    assert nearest([(other, "it")], near, Patience(preference="any")) is None


def test_a_claimant_of_whom_nothing_is_known_comes_last_and_a_zone_nobody_names_is_one() -> None:
    nowhere, near = claimant("w1"), Place("n1")
    assert distance(nowhere, near) == "any"
    assert opening(nowhere, PATIENCE) == (PATIENCE.longest,) * 4
    assert distance(claimant("n2/7"), near) == "zone"
    assert distance(claimant("w1", Wish(prefer_zone="z1")), Place("n1", "z1")) == "zone"
    assert claimant("n2/7", Wish(prefer_node="n3", max_distance="zone")) == Claimant("n3", max_distance="zone")


def test_the_nearest_who_waits_is_chosen_and_of_equals_the_first() -> None:
    near = Place("n1", "z1")
    line = [(Claimant("n3", "z2"), 0), (Claimant("n2", "z1"), 1), (Claimant("n1", "z1"), 2), (Claimant("n1", "z1"), 3)]
    assert nearest(line, near, PATIENCE) == 2
    assert nearest(line[:2], near, PATIENCE) is None, "it is left to its node for a while"
    assert nearest(line[:2], near, Patience(preference="any")) == 1


def test_the_closest_work_comes_first_and_none_from_too_far() -> None:
    """INV-159."""
    near = [None, Place("n4", "z1", "r2"), Place("n3", "z2", "r1"), Place("n2", "z1", "r1"), Place("n2", "z1", "r1")]
    work = list(zip(near, range(5), strict=True))
    who = Claimant("n1", "z1", "r1")
    order = []
    while work:
        taken = closest(who, work)
        assert taken is not None
        order.append(taken)
        work = [(place, one) for place, one in work if one != taken]
    assert order == [3, 4, 2, 1, 0]
    assert closest(Claimant("n1", "z1", "r1", "node"), zip(near[1:], range(4), strict=True)) is None
    assert closest(Claimant("n1", "z1", "r1", "node"), [(None, "anybody's")]) == "anybody's"
    assert closest(Claimant("n2", max_distance="node"), zip(near[1:], range(4), strict=True)) == 2


def test_a_workers_name_tells_its_place() -> None:
    stem = "noetl://tenant/t/org/o/cluster/c"
    assert place_of(f"{stem}/region/r/zone/z/node/n:1/process/7/worker/host") == Place("n:1", "z", "r")
    assert place_of(f"{stem}/zone/z/node/n1/process/7/worker/host") == Place("n1", "z")
    assert place_of(f"{stem}/node/n1/process/7/worker/host") == Place("n1")
    assert place_of("n1/4711") == Place("n1")
    for silent in ("w1", "", "a/b", "noetl://nonsense", f"{stem}/node/n1/process/7/worker/host/spark/app-1/t/lane/0"):
        assert place_of(silent) is None


def test_a_worker_tells_its_place_by_its_settings() -> None:
    plain = Settings.model_validate({"runtime": {"node_id": "n1"}})
    placed = Settings.model_validate(
        {"runtime": {"node_id": "n1", "zone": "z", "region": "r", "scheduler": {"max_distance": "zone"}}}
    )
    assert place_of(remote_name(plain.runtime)) == Place("n1")
    assert place_of(remote_name(placed.runtime)) == Place("n1", "z", "r")
    assert place_of(process_locator(plain.runtime, "worker")) == Place("n1")
    assert place_of(process_locator(placed.runtime, "worker")) == Place("n1", "z", "r")
    assert wish_of(plain) == Wish(prefer_node="n1")
    assert wish_of(placed) == Wish(prefer_node="n1", prefer_zone="z", prefer_region="r", max_distance="zone")
    assert patience_of(plain) == PATIENCE


def test_the_fullest_place_holds_most_bytes() -> None:
    a, b = Place("a"), Place("b", "z")
    assert fullest([(a, 5), (b, 4), (None, 100), (b, 2)]) == (b, 6)
    assert fullest([(a, 5), (b, 5)]) == (a, 5)
    assert fullest([(None, 5)]) is None
