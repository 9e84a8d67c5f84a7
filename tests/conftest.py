"""Loads the test plugins, and lets assertions in contract suites explain themselves like those in tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("noetl.testing")

pytest_plugins = [
    "noetl.testing.postgres",
    "noetl.testing.parity",
    "noetl.testing.playbooks",
    "noetl.testing.spark",
    "noetl.testing.pipelines",
]

# Small jobs in many JVMs: compiling them quickly takes less time than running them quickly would save.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("noetl", deadline=None)
settings.load_profile("noetl")
