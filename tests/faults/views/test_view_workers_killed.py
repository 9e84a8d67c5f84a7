"""`noetl views run` killed with SIGKILL wherever it writes something durable: the next one goes on, counting each event once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.contracts.views.view_testbed import CITIES, SCOPE, noted

from noetl.kernel.ledger.postgres.ledger import PostgresLedger

pytestmark = [
    pytest.mark.service, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(1200),
    pytest.mark.xdist_group("view_workers"),
]  # fmt: skip

OF_A_BATCH = ("view.before_apply", "view.before_commit", "view.after_commit")
OF_A_SWAP = ("view.before_swap", "view.after_swap")


class Commands:
    """Runs `noetl` in processes of their own, in one folder and organization."""

    def __init__(self, owner_url: str, home: Path, spark_cache: Path) -> None:
        self._home = home
        self._environment = os.environ | {
            "NOETL_DATABASE_URL": owner_url,
            "NOETL_TENANT_ID": SCOPE.tenant_id,
            "NOETL_ORGANIZATION_ID": SCOPE.organization_id,
            "NOETL_SPARK__MASTER": "local[2]",
            "NOETL_SPARK__DRIVER_MEMORY": "1g",
            "NOETL_SPARK__CACHE_DIRECTORY": str(spark_cache),
            "NOETL_VIEWS__PARTITIONS": "1",
        }

    def run(self, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever that is."""
        return subprocess.run(
            [sys.executable, "-m", "noetl", *words],
            cwd=self._home, env=self._environment | {"NOETL_FAULT": fault}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def said(self, *words: str) -> Any:
        """Run a command that must end well and return what it says as JSON."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def deploy(self, text: str) -> None:
        """Deploy a view."""
        (self._home / "cities.yaml").write_text(text)
        self.said("views", "deploy", "cities.yaml")


@pytest.fixture
def commands(owner_url: str, tmp_path: Path, spark_cache: Path) -> Commands:
    return Commands(owner_url, tmp_path, spark_cache)


async def test_a_worker_killed_at_every_stage_of_a_batch_and_of_a_swap_leaves_no_trace(
    commands: Commands, ledger: PostgresLedger, owner_url: str
) -> None:
    """INV-94, INV-95, INV-97."""
    truth = Counter[str]()
    commands.deploy(CITIES)
    for point in OF_A_BATCH:
        await killed_and_taken_up(commands, ledger, owner_url, truth, point)
    assert_verified(commands)
    for number, point in enumerate(OF_A_SWAP):
        commands.deploy(CITIES.replace("amount > 0", f"amount > {number} - 2"))
        await killed_and_taken_up(commands, ledger, owner_url, truth, point)
    assert_verified(commands)


async def killed_and_taken_up(
    commands: Commands, ledger: PostgresLedger, owner_url: str, truth: Counter[str], point: str
) -> None:
    """Have a worker die at a point over new events, look at what readers see, and let the next one end its work."""
    before = dict(truth)
    for city in ("rome", "bonn", "rome"):
        await ledger.transact(noted(city, 1))
        truth[city] += 1
    died = commands.run("views", "run", "cities", "--once", fault=f"{point}=kill")
    assert died.returncode == -signal.SIGKILL, died.stderr
    # A batch is seen whole or not at all, and of a version that is not swapped in yet nothing is.
    assert notes(commands) == (dict(truth) if ".after_" in point else before)
    await let_the_lease_run_out(owner_url)
    again = commands.run("views", "run", "cities", "--once")
    assert again.returncode == 0, again.stderr
    assert notes(commands) == dict(truth)


def notes(commands: Commands) -> dict[str, int]:
    return {row["city"]: row["notes"] for row in commands.said("views", "rows", "cities")["rows"]}


def assert_verified(commands: Commands) -> None:
    (found,) = commands.said("views", "verify", "cities")
    assert (found["view"], found["differences"]) == ("cities", 0)


async def let_the_lease_run_out(owner_url: str) -> None:
    """Have the time pass for which a dead process keeps a view."""
    connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    try:
        moved = await connection.execute(
            "UPDATE noetl.view_version SET lease_until = now() WHERE lease_until IS NOT NULL"
        )
    finally:
        await connection.close()
    assert moved != "UPDATE 0", "the dead process held no view"
