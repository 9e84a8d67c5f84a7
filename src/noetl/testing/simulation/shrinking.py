"""Makes a failing scenario small: faults, executions, rows and processes are left out as long as the same invariant breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from noetl.testing.simulation.faults import Fault, WriteFault
from noetl.testing.simulation.mutations import NONE, Mutation
from noetl.testing.simulation.running import Outcome, simulate
from noetl.testing.simulation.scenario import Scenario

T = TypeVar("T")

MOST_RUNS = 300
"""Scenarios tried at most."""


def shrunk(outcome: Outcome, mutation: Mutation = NONE, most_runs: int = MOST_RUNS) -> Outcome:
    """Return the smallest scenario found that breaks the same invariant."""
    if outcome.broken is None:
        return outcome
    search = _Search(outcome, mutation, most_runs)
    before = None
    while before is not search.best and search.runs < most_runs:
        before = search.best
        search.fewer(lambda one: one.faults, lambda one, left: msgspec.structs.replace(one, faults=left))
        search.fewer(lambda one: one.wanted, lambda one, left: msgspec.structs.replace(one, wanted=left))
        search.fewer(lambda one: one.acts, lambda one, left: msgspec.structs.replace(one, acts=left))
        search.fewer(lambda one: one.processes, _only)
        for smaller in _smaller(search.best.scenario):
            search.tried(smaller)
    return search.best


class _Search:
    """The best scenario so far, and how many were tried."""

    def __init__(self, outcome: Outcome, mutation: Mutation, most_runs: int) -> None:
        self.best = outcome
        self.runs = 0
        self._mutation = mutation
        self._most = most_runs

    def tried(self, scenario: Scenario) -> bool:
        """Run a scenario, and keep it if the same invariant breaks."""
        if self.runs >= self._most or not (scenario.wanted or scenario.acts):
            return False
        self.runs += 1
        found = simulate(scenario, self._mutation)
        assert self.best.broken is not None
        if found.broken is None or found.broken.invariant != self.best.broken.invariant:
            return False
        self.best = found
        return True

    def fewer(
        self,
        parts: Callable[[Scenario], Sequence[T]],
        only: Callable[[Scenario, tuple[T, ...]], Scenario],
    ) -> None:
        """Leave out halves, then quarters, and in the end single parts, by delta debugging."""
        size = max(1, len(parts(self.best.scenario)) // 2)
        while True:
            at = 0
            while at < len(all_parts := tuple(parts(self.best.scenario))):
                left = all_parts[:at] + all_parts[at + size :]
                if len(left) == len(all_parts) or not self.tried(only(self.best.scenario, left)):
                    at += size
            if size == 1:
                return
            size = max(1, size // 2)


def _only(scenario: Scenario, left: tuple[str, ...]) -> Scenario:
    """Return a scenario with these processes; there is no world without a server and a worker."""
    if "server-1" not in left or not any(name.startswith("worker") for name in left):
        return msgspec.structs.replace(scenario, wanted=(), acts=())
    faults = tuple(one for one in scenario.faults if isinstance(one, WriteFault) or not one.who or one.who in left)
    return msgspec.structs.replace(scenario, processes=left, faults=faults)


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Give scenarios with fewer rows, and with executions and faults that come sooner."""
    for place, one in enumerate(scenario.wanted):
        for rows in (1, 2, one.rows // 2, one.rows - 1):
            if 0 < rows < one.rows:
                bad = tuple(row for row in one.bad if row < rows)
                yield _with(scenario, place, msgspec.structs.replace(one, rows=rows, bad=bad))
        if one.in_flight > 1 or one.fails:
            yield _with(scenario, place, msgspec.structs.replace(one, in_flight=1, fails=0))
        if one.at:
            yield _with(scenario, place, msgspec.structs.replace(one, at=0.0))
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, Fault) and fault.seconds > 1.0:
            sooner = msgspec.structs.replace(fault, seconds=1.0)
            faults = (*scenario.faults[:place], sooner, *scenario.faults[place + 1 :])
            yield msgspec.structs.replace(scenario, faults=faults)


def _with(scenario: Scenario, place: int, one: object) -> Scenario:
    wanted = (*scenario.wanted[:place], one, *scenario.wanted[place + 1 :])
    return msgspec.structs.replace(scenario, wanted=wanted)
