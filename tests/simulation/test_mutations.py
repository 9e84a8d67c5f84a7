"""Bugs that are put back in are found, and their stories are small."""

from __future__ import annotations

import json

import pytest

from noetl.ledger.transition import Transition
from noetl.testing.simulation.__main__ import main
from noetl.testing.simulation.mutations import BY_NAME, GUARDED_TWICE, MUTATIONS, UNSEEN, Mutation, forgetting, types_in
from noetl.testing.simulation.running import Outcome, simulate
from noetl.testing.simulation.scenario import scenario_of
from noetl.testing.simulation.shrinking import shrunk
from noetl.testing.simulation.story import told

QUICK, PATIENT = 60, 2_000
"""Within so many seeds a mutation is found."""


def found(mutation: Mutation, seeds: int) -> Outcome:
    """Return the first seed that breaks an invariant with a mutation; without it, none does."""
    for seed in range(seeds):
        outcome = simulate(scenario_of(seed, mutation.only), mutation)
        if outcome.broken is not None:
            return outcome
    pytest.fail(f"{mutation.name} was not found in {seeds} seeds")


@pytest.mark.parametrize("name", [one.name for one in MUTATIONS if not one.is_rare])
def test_a_bug_put_back_in_is_found(name: str) -> None:
    """INV-209"""
    outcome = found(BY_NAME[name], QUICK)
    assert outcome.broken is not None
    assert not BY_NAME[name].found_by or outcome.broken.invariant in BY_NAME[name].found_by
    assert simulate(outcome.scenario).broken is None


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [one.name for one in MUTATIONS if one.is_rare])
def test_a_rare_bug_put_back_in_is_found(name: str) -> None:
    """INV-209"""
    outcome = found(BY_NAME[name], PATIENT)
    assert outcome.broken is not None
    assert not BY_NAME[name].found_by or outcome.broken.invariant in BY_NAME[name].found_by


@pytest.mark.slow
def test_every_fence_that_is_relied_on_has_its_mutation() -> None:
    """INV-209: whoever adds a transition with a fence adds the bug of forgetting it."""
    listed = {part for one in (*MUTATIONS, *UNSEEN) for part in one.forgets} | GUARDED_TWICE
    missing: set[str] = set()

    def note(transition: Transition) -> Transition:
        kinds = types_in(transition)
        for fence in transition.fences:
            if not any((kind, fence.table, fence.mode) in listed for kind in kinds):
                missing.add(f"{sorted(kinds)} on {fence.mode} {fence.table}")
        return transition

    noting = Mutation("noting", "Nothing is forgotten.", change=forgetting(note))
    for seed in range(60):
        simulate(scenario_of(seed), noting)
    assert not missing


def test_a_failing_seed_becomes_a_small_story(capsys: pytest.CaptureFixture[str]) -> None:
    """INV-209"""
    mutation = BY_NAME["ring-of-steps"]
    outcome = found(mutation, QUICK)
    small = shrunk(outcome, mutation)
    assert len(small.scenario.wanted) == 1
    assert small.scenario.wanted[0].shape == "ring"
    assert small.scenario.faults == ()
    story = told(small, mutation=mutation.name)
    assert "limits end a ring of steps" in story
    assert f"--seed {small.scenario.seed} --mutation ring-of-steps" in story
    assert main(["--seed", str(small.scenario.seed), "--mutation", mutation.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["broken"]["invariant"] == "limits end a ring of steps"
