"""Every command that works in its own process follows `worker.isolation`, and says where tasks are hardly confined."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cli.shop import write_shop

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: jobs/nightly}
workflow:
  - step: only
    tool: {kind: shell, command: "true"}
"""


def test_commands_that_work_say_that_tasks_are_not_confined(
    noetl: Noetl, tmp_path: Path, spark_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-200: on standard error, beside what they print."""
    monkeypatch.setenv("NOETL_SPARK__CACHE_DIRECTORY", str(spark_cache))
    monkeypatch.setenv("NOETL_SPARK__DRIVER_MEMORY", "512m")
    (tmp_path / "nightly.yaml").write_text(PLAYBOOK)
    assert noetl("catalog", "register", "nightly.yaml")[0] == 0
    assert noetl("schedule", "create", "nightly", "--playbook", "jobs/nightly", "--every", "5 minutes")[0] == 0
    monkeypatch.setenv("NOETL_WORKER__ISOLATION", "none")
    write_shop(tmp_path)
    for command in (
        ("run", "nightly.yaml"),
        ("executions", "rerun", "last"),
        ("schedule", "run", "nightly"),
        ("dag", "run", "dag.yaml"),
        ("dag", "deploy", "dag.yaml", "--wait"),
    ):
        code, output, errors = noetl(*command)
        assert code == 0, (command, output, errors)
        assert errors.count("warning: tasks have the rights of this account: worker.isolation is none") == 1, command
        assert "rights of this account" not in output
