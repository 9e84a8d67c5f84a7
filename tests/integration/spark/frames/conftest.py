"""Playbooks whose worker uses the Spark that all tests of the process share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from noetl.engine.plan.state import State
from noetl.runtime.assembly import engine
from noetl.runtime.spark import frames
from noetl.spark.drivers.pool import Drivers
from noetl.spark.frames.pool import FramePool
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers

WAIT_SECONDS = 200.0
"""How long a run on Spark may take: its first one starts Spark and loads everything in the executors."""

PoolMaker = Callable[..., FramePool]


class Lent:
    """Drivers that stay when a worker ends."""

    def __init__(self, shared: SharedDrivers) -> None:
        self.for_ = shared.for_

    async def interrupt_left(self, application_id: str, job_tag: str, organization: str) -> None:
        """Stop nothing: what runs without a Connect server ends with its driver."""

    async def close(self) -> None:
        """Leave them to the next test."""


def lending(shared: SharedDrivers) -> PoolMaker:
    """Return what makes the pool of a worker on shared drivers."""

    def make(*args: Any, **fields: Any) -> FramePool:
        pool = frames.frame_pool(*args, **fields)
        pool._make = lambda: cast("Drivers", Lent(shared))
        return pool

    return make


async def ran(playbooks: Playbooks, text: str, workload: dict[str, Any] | None = None) -> State:
    """Run a playbook to its end."""
    started = await playbooks.start(text, workload)
    state = await playbooks.engine.finished(playbooks.scope, started.execution_id, WAIT_SECONDS)
    assert state.ended, f"execution {started.execution_id} has not ended: active {state.active}"
    return state


@pytest.fixture
def on_spark(playbooks: Playbooks, spark_drivers: SharedDrivers, monkeypatch: pytest.MonkeyPatch) -> Playbooks:
    """Playbooks with Spark at hand."""
    monkeypatch.setattr(engine, "frame_pool", lending(spark_drivers))
    return playbooks
