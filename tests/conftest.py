"""Loads the test plugins, and lets assertions in contract suites explain themselves like those in tests."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("noetl.testing")

pytest_plugins = ["noetl.testing.postgres", "noetl.testing.parity", "noetl.testing.playbooks"]
