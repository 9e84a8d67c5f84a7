"""Three hundred seeds of lost, late and repeated messages, pauses, crashes and clock steps, as CI runs them."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import hold

SEEDS, CHUNK = 300, 50


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_invariants_hold_under_three_hundred_seeds(first: int) -> None:
    """INV-208"""
    hold(range(first, first + CHUNK))
