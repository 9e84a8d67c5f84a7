"""Fixtures of tests/unit/spark/operators for the tests that need a server."""

from __future__ import annotations

from tests.unit.spark.operators.conftest import _quiet_sockets, rig, spark  # noqa: F401 - fixtures
