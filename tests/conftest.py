"""Loads the test plugins, and lets assertions in contract suites explain themselves like those in tests."""

from __future__ import annotations

import os
import signal

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

pytest.register_assert_rewrite("noetl.testing")

pytest_plugins = [
    "noetl.testing.servers.postgres",
    "noetl.testing.servers.nats",
    "noetl.testing.engines.parity",
    "noetl.testing.engines.playbooks",
    "noetl.testing.servers.spark",
    "noetl.testing.engines.pipelines",
]

# What this program says of itself is checked in every process that a test starts.
os.environ["NOETL_STRICT_EVENTS"] = "1"

# Where root runs the tests, tasks of the workers they start write to directories of root's own.
os.environ.setdefault("NOETL_WORKER__ISOLATION", "namespace" if os.geteuid() == 0 else "auto")

# Small jobs in many JVMs: compiling them quickly takes less time than running them quickly would save.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A shell that runs the tests in the background lets them ignore Ctrl-C, and so would every process they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SHARED_SPARK = {
    "spark": "spark_session",
    "spark_drivers": "spark_drivers",
    "scripted_drivers": "spark_drivers",
    "spark_master": "spark_cluster",
}
"""Fixtures that start Spark once per test process, and the group whose tests share it."""

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("noetl", deadline=None)
settings.load_profile("noetl")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep tests that share a Spark in one process, so that it is started and warmed up once."""
    names = getattr(item, "fixturenames", [])
    groups = [_SHARED_SPARK[name] for name in names if name in _SHARED_SPARK]
    if groups or "spark_options" in names:
        item.add_marker(pytest.mark.xdist_group(groups[0] if groups else item.nodeid.partition("::")[0]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what may take longest, so that no process is left with it while the others have nothing to do."""
    items.sort(key=_patience, reverse=True)
    if config.getoption("loadgroup", default=False):
        for item in items:
            _tell_group(item)


def _tell_group(item: pytest.Item) -> None:
    """Write a test's group into its id, where the scheduler reads it.

    The plugin that runs tests in several processes does so itself, but to a field that pytest no longer looks at: each
    process would get tests of every group, and start every Spark of its own.
    """
    groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
    told = f"@{'_'.join(groups)}"
    if groups and not item.nodeid.endswith(told):
        item._id = NodeId.parse(item.nodeid + told)


def _patience(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None and mark.args else 0.0
