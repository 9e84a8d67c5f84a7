"""Bugs that are put back in are found, and their stories are small."""

from __future__ import annotations

import json

import pytest

from noetl.kernel.ledger.transition import Transition
from noetl.testing.simulation.__main__ import main
from noetl.testing.simulation.aiming import SHOWN_IN, aim_of
from noetl.testing.simulation.checks.transitions import types_in
from noetl.testing.simulation.mutations import BY_NAME, FENCES, GUARDED_TWICE, MUTATIONS, Mutation, forgetting
from noetl.testing.simulation.running import Outcome, simulate
from noetl.testing.simulation.scenario import scenario_of
from noetl.testing.simulation.shrinking import shrunk
from noetl.testing.simulation.story import told

QUICK, PATIENT = 60, 2_000
"""Within so many seeds a mutation is found."""


def found(mutation: Mutation, seeds: int) -> Outcome:
    """Return the first seed that breaks an invariant with a mutation; without it, none does."""
    for seed in range(seeds):
        outcome = simulate(scenario_of(seed, mutation.only, mutation.late), mutation)
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


@pytest.mark.parametrize("mutation", GUARDED_TWICE, ids=lambda one: one.name)
def test_a_fence_that_is_guarded_twice_changes_no_story_when_it_is_forgotten(mutation: Mutation) -> None:
    """INV-209"""
    for seed in range(6):
        scenario = scenario_of(seed, mutation.only, mutation.late)
        assert simulate(scenario, mutation) == simulate(scenario)


def test_every_type_of_event_with_a_fence_is_aimed_at() -> None:
    """INV-209: some seeds of every run hold up its writes, so that what it relies on changes meanwhile."""
    assert {kind for one in FENCES for kind, _, _ in one.forgets} == SHOWN_IN.keys()
    aims = [aim_of(seed) for seed in range(1_000)]
    assert set(aims) == {None, *SHOWN_IN}
    assert 700 < aims.count(None) < 970


@pytest.mark.slow
def test_every_fence_that_is_relied_on_has_its_mutation() -> None:
    """INV-209: whoever adds a transition with a fence adds the bug of forgetting it."""
    listed = {part for one in (*MUTATIONS, *GUARDED_TWICE) for part in one.forgets}
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
    for seed, (kind, shape) in enumerate(SHOWN_IN.items()):
        simulate(scenario_of(seed, shape, kind), noting)
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
