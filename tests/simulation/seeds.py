"""Runs seeds, and fails with the story of the first that breaks an invariant, made small."""

from __future__ import annotations

from collections.abc import Iterable

from noetl.testing.simulation.running import simulate
from noetl.testing.simulation.scenario import scenario_of
from noetl.testing.simulation.shrinking import shrunk
from noetl.testing.simulation.story import told


def hold(seeds: Iterable[int]) -> None:
    """See that all invariants hold under these seeds."""
    for seed in seeds:
        outcome = simulate(scenario_of(seed))
        assert outcome.broken is None, "\n" + told(shrunk(outcome, most_runs=60))
