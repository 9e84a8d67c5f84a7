"""What executors are told, and what the ends of lanes come to together; no Spark is needed for either."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.credentials.secret import Secret
from noetl.errors import LeaseLost, Unavailable
from noetl.ledger.database import Database
from noetl.model.stream import Scope
from noetl.runtime.frames_on_spark import OnExecutor, frame_pool
from noetl.runtime.settings import Settings
from noetl.spark.frames_pool import _together

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
