"""The states of jobs, case by case."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noetl.pipelines.plan.life_cycles import Sight, reactive_state, source_state

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def before(seconds: float) -> datetime:
    """Return a time so many seconds ago."""
    return NOW - timedelta(seconds=seconds)


SOURCES: list[tuple[dict[str, Any], bool, str | None]] = [
    ({}, True, "Pending"),
    ({}, False, "Pending"),
    ({"queued": 1}, True, "Pending"),
    ({"queued": 1}, False, "Pending"),
    ({"held": 1}, True, "Running"),
    ({"held": 1, "queued": 3}, False, "Running"),
    ({"lost": 1}, True, "Dead"),
    ({"lost": 1}, False, "Dead"),
    ({"held": 1, "lost": 1}, False, "Running"),
    ({"retrying": 1, "newest": "Failed"}, True, "Dead"),
    ({"held": 1, "stopping": 1}, True, "Draining"),
    ({"held": 1, "in_use": False}, True, "Draining"),
    ({"held": 1, "in_use": False}, False, "Draining"),
    ({"in_use": False}, True, None),
    ({"queued": 1, "in_use": False}, True, None),
    ({"newest": "Completed", "last_sign": before(69)}, True, "Running"),
    ({"newest": "Completed", "last_sign": before(71)}, True, "Dead"),
    ({"newest": "Completed"}, True, "Dead"),
    ({"newest": "Completed", "last_sign": before(9999)}, False, "Pending"),
    ({"newest": "Failed", "last_sign": before(1)}, True, "Dead"),
    ({"newest": "Failed", "last_sign": before(1)}, False, "Pending"),
    ({"newest": "Failed", "last_sign": before(1), "queued": 1}, True, "Pending"),
    ({"newest": "Canceled", "last_sign": before(1)}, True, "Pending"),
]
REACTIVE: list[tuple[dict[str, Any], float | None, str | None]] = [
    ({}, None, "Idle"),
    ({}, math.inf, "Idle"),
    ({"queued": 1}, None, "Running"),
    ({"held": 1}, None, "Running"),
    ({"lost": 1}, 0, "Running"),
    ({"retrying": 1}, 0, "Running"),
    ({"last_sign": before(1)}, None, "Idle"),
    ({"last_sign": before(1)}, 0, "Idle"),
    ({"last_sign": before(299)}, 300, "Running"),
    ({"last_sign": before(300)}, 300, "Idle"),
    ({"last_sign": before(10**6)}, math.inf, "Running"),
    ({"in_use": False, "last_sign": before(1)}, 300, None),
    ({"in_use": False, "queued": 1}, 300, None),
    ({"in_use": False, "held": 1}, 300, "Running"),
]


@pytest.mark.parametrize(("seen", "kept", "state"), SOURCES)
def test_a_source_is_in_one_state(seen: dict[str, Any], kept: bool, state: str | None) -> None:
    sight = Sight(**{"in_use": True, **seen})
    assert source_state(sight, kept_running=kept, now=NOW, every_seconds=10, silent_seconds=60) == state


@pytest.mark.parametrize(("seen", "idle", "state"), REACTIVE)
def test_a_reactive_job_is_in_one_state(seen: dict[str, Any], idle: float | None, state: str | None) -> None:
    assert reactive_state(Sight(**{"in_use": True, **seen}), now=NOW, idle_seconds=idle) == state
