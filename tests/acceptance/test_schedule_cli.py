"""`noetl schedule` and `noetl scheduler` as people use them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

NIGHTLY = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: jobs/nightly}
workload: {size: 1}
workflow:
  - step: only
    tool: {kind: python, code: "def main(size): return 10 / size", input: {size: "{{ workload.size }}"}}
"""


@pytest.fixture
def nightly(noetl: Noetl, tmp_path: Path) -> Noetl:
    """The command, with a playbook registered."""
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    assert noetl("catalog", "register", "nightly.yaml")[0] == 0
    return noetl


def create(noetl: Noetl, *more: str) -> tuple[int, str, str]:
    return noetl("schedule", "create", "nightly", "--playbook", "jobs/nightly", *more)


def test_a_schedule_is_made_run_paused_and_removed(nightly: Noetl) -> None:
    code, said, _ = create(nightly, "--cron", "0 6 * * *", "--timezone", "Europe/Berlin", "--set", "size=5")
    assert code == 0
    assert re.fullmatch(r"nightly is scheduled; next run \d{4}-\d\d-\d\d 06:00 CES?T\n", said)
    assert "was scheduled so before" in create(
        nightly, "--cron", "0 6 * * *", "--timezone", "Europe/Berlin", "--set", "size=5"
    )[1]  # fmt: skip
    code, said, _ = nightly("schedule", "run", "nightly")
    assert (code, bool(re.search(r"started, which completed: execution \d+", said))) == (0, True)
    code, said, _ = nightly("schedule", "show", "nightly")
    assert "playbook jobs/nightly" in said
    assert said.count("  next  ") == 5
    assert "ok, by hand" in said
    assert "COMPLETED" in said
    assert nightly("schedule", "pause", "nightly")[1] == "nightly is paused\n"
    (one,) = json.loads(nightly("schedule", "list", "--json")[1])
    assert (one["paused"], one["next_run"], one["last"]["status"]) == (True, None, "SUCCESS")
    assert "nightly goes on; next run" in nightly("schedule", "resume", "nightly")[1]
    assert nightly("schedule", "remove", "nightly")[1] == "nightly is removed\n"
    assert nightly("schedule", "list")[1] == "There are no schedules.\n"
    assert nightly("verify")[0] == 0


def test_what_a_schedule_starts_and_fails_is_the_commands_failure(nightly: Noetl) -> None:
    assert create(nightly, "--every", "5 minutes", "--set", "size=0")[0] == 0
    code, said, _ = nightly("schedule", "run", "nightly")
    assert (code, "failed: execution" in said) == (1, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "either --cron or --every"),
        (("--cron", "61 * * * *"), "the minute must be"),
        (("--cron", "@reboot"), "@reboot names no time"),
        (("--cron", "0 6 * * *", "--timezone", "Moon"), "no time zone"),
        (("--every", "5 moons"), "five or six fields"),
    ],
)
def test_a_schedule_that_is_wrong_is_refused(nightly: Noetl, options: tuple[str, ...], said: str) -> None:
    code, _, problem = create(nightly, *options)
    assert code == 2
    assert said in problem


def test_a_schedule_of_nothing_is_refused(noetl: Noetl) -> None:
    code, _, problem = create(noetl, "--cron", "0 6 * * *")
    assert code == 1
    assert "jobs/nightly" in problem
    assert noetl("schedule", "show", "nightly")[0] == 1


def test_jobs_of_the_platform_are_seen_and_run(nightly: Noetl) -> None:
    code, said, _ = nightly("schedule", "run", "prune_slots", "--platform")
    assert (code, said) == (0, "prune_slots ran: 0 rows\n")
    names = {one["name"] for one in json.loads(nightly("schedule", "list", "--platform", "--json")[1])}
    assert {"prune_slots", "reconcile", "evaluate_alerts", "retention"} <= names
    assert nightly("schedule", "remove", "prune_slots")[0] == 1


def test_a_scheduler_starts_what_is_due_and_drains_on_a_signal(nightly: Noetl, tmp_path: Path) -> None:
    create(nightly, "--cron", "* * * * * *")
    command = [sys.executable, "-m", "noetl", "scheduler"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running what is due\n"
            past: list[dict[str, Any]] = []
            deadline = time.monotonic() + 60
            while not any(one["run_id"] for one in past) and time.monotonic() < deadline:
                past = json.loads(nightly("schedule", "show", "nightly", "--json")[1])["past"]
            assert any(one["run_id"] for one in past), past
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, process.stdout.read()
        finally:
            process.kill()
    past = json.loads(nightly("schedule", "show", "nightly", "--json", "--limit", "100")[1])["past"]
    assert all(one["status"] == "SUCCESS" for one in past), "nothing was left half done"
