"""What executors are told, and what the ends of lanes come to together; no Spark is needed for either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from noetl.engine.dispatch.grants import CommandGrant, LoopGrant, StepContext
from noetl.errors import LeaseLost, OutsideUnavailable, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.spark.frames import OnExecutor, frame_pool
from noetl.services.credentials.secret import Secret
from noetl.spark.drivers.pool import Drivers
from noetl.spark.drivers.protocol import RunFrames, WorkResult
from noetl.spark.frames.pool import FramePool, _together

SETTINGS = Settings.model_validate(
    {
        "runtime": {"home": "somewhere"},
        "database": {"url": "postgresql://app:pass1@db/x", "owner_url": "postgresql://owner:pass2@db/x"},
        "lake": {"secret_key": "pass3"},
    }
)
SCOPE = Scope("default", "default")


def test_executors_are_told_no_more_than_they_need() -> None:
    direct = frame_pool(SETTINGS, SCOPE, database=Database("postgresql://app:pass1@db/x"))._reach
    assert "pass1" in str(direct)
    assert not any(secret in str(direct) for secret in ("pass2", "pass3"))
    assert OnExecutor(direct)._settings.runtime.home == Path("somewhere").absolute()

    over_api = frame_pool(SETTINGS, SCOPE, url="http://server", token=Secret("token1"))._reach
    assert (over_api["url"], over_api["token"]) == ("http://server", "token1")
    assert not any(secret in str(over_api) for secret in ("pass1", "pass2", "pass3"))


def test_rows_of_all_lanes_are_counted_and_the_first_problem_is_told() -> None:
    problem = {"kind": "schema", "message": "no such table"}
    end = _together("each", [{"rows_done": 3, "claims": 1}, {"rows_done": 2, "rows_failed": 1, "problem": problem}])
    assert (end.rows_done, end.rows_failed, end.claims) == (5, 1, 1)
    assert end.problem is not None
    assert end.problem.message == "no such table"


def test_a_lane_that_lost_the_command_speaks_for_all() -> None:
    with pytest.raises(LeaseLost):
        _together("each", [{"rows_done": 3}, {"lost": True, "again": "later"}])
    with pytest.raises(Unavailable, match="later"):
        _together("each", [{"rows_done": 3}, {"again": "later"}])
    # One whose claim failed in a user's database counts, whatever the others wait for.
    with pytest.raises(OutsideUnavailable, match="no such server"):
        _together("each", [{"again": "later"}, {"again": "no such server", "counts": True}])


class Ending:
    """Drivers whose every job ends the same way, or that do not start."""

    application_id = "app-1"

    def __init__(self, **result: Any) -> None:
        self._result = result

    @asynccontextmanager
    async def for_(self, *_: Any) -> AsyncIterator[Ending]:
        if not self._result:
            raise Unavailable("Spark did not start")
        yield self

    async def do(self, errand: RunFrames) -> WorkResult:
        return WorkResult(task_id=errand.id, attempt=errand.attempt, **self._result)

    async def close(self) -> None:
        """End nothing."""


async def ends(drivers: Ending) -> Any:
    grant = CommandGrant(
        execution_id=1, command_id="s/1/0", step="s", attempt=1, token="t", lease_seconds=1, catalog_id="c",
        issued_event_id=1, context=StepContext(workload={}, ctx={}, results={}),
        loop=LoopGrant(stage_id=1, loop_id=1, mode="parallel", total=1, frame={"lanes": 1}, rows_ref=None),
    )  # fmt: skip

    async def started(application_id: str, tag: str) -> None:
        """Note nothing."""

    return await FramePool(SCOPE, {}, lambda: cast("Drivers", drivers)).work(grant, "w", started)


async def test_a_spark_job_that_fails_costs_an_attempt_unless_it_was_told_to_stop() -> None:
    """INV-33, INV-182: rows that end their executors are not tried for ever, and what cannot pass is not tried again."""
    for drivers in (Ending(), Ending(status="error", error="an executor was lost", error_kind="spark_error")):
        with pytest.raises(OutsideUnavailable):
            await ends(drivers)
    with pytest.raises(Unavailable) as told:
        await ends(Ending(status="interrupted", error="it was told to stop"))
    assert not isinstance(told.value, OutsideUnavailable)
    end = await ends(Ending(status="error", error="a file is damaged", error_kind="damaged", retryable=False))
    assert end.problem is not None
    assert (end.problem.code, "a file is damaged" in end.problem.message) == ("damaged", True)
