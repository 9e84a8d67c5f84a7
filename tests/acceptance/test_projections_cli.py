"""`noetl projections` on a real database, as a user types it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.model.mark import Mark
from noetl.runtime.config import load_settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.samples.projected_ledger import HOME, a_run, record

pytestmark = pytest.mark.service

Noetl = Callable[..., tuple[int, str, str]]

REFUSING = """
from noetl.kernel.projections.folds.business_object import business_object

@business_object("invoice", events=["business.invoice.posted"])
def invoice(row, event):
    raise ValueError("not this one")

@business_object("invoice", events=["business.invoice.posted"])
def mended(row, event):
    return {"amount": event.meta["amount"]}
"""


def with_runtime(do: Callable[[Runtime], Any]) -> Any:
    async def doing() -> Any:
        async with open_runtime(load_settings()) as runtime:
            return await do(runtime)

    return asyncio.run(doing())


def recorded(frames: int = 3) -> int:
    """Record an execution and return how many events it has."""
    events = a_run(HOME, frames)
    with_runtime(lambda runtime: record(runtime.ledger, events))
    return len(events)


def parsed(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def test_status_shows_lag_before_and_none_after_catching_up(noetl: Noetl) -> None:
    events = recorded()
    before = parsed(noetl("projections", "status", "--json"))
    assert (before["lag_events"], before["rows"], before["failing"], len(before["shards"])) == (events, 0, [], 16)
    assert before["lag_seconds"] > 0
    code, out, _ = noetl("projections", "run")
    assert (code, out) == (0, f"Projected {events} events.\n")
    after = parsed(noetl("projections", "status", "--json"))
    assert (after["lag_events"], after["lag_seconds"], after["rows"] > 0) == (0, 0.0, True)
    code, out, _ = noetl("projections", "status")
    assert [line.split()[-1] for line in out.splitlines()[1:17]] == ["ok"] * 16
    assert (code, "\n0 events behind, " in out) == (0, True)


def test_catching_up_twice_projects_nothing_more(noetl: Noetl) -> None:
    recorded()
    noetl("projections", "run")
    assert noetl("projections", "run")[:2] == (0, "Projected 0 events.\n")


def test_a_rebuild_reports_what_it_found(noetl: Noetl) -> None:
    events = recorded()
    noetl("projections", "run")
    code, out, _ = noetl("projections", "rebuild")
    assert (code, out.splitlines()[1]) == (0, "Every row was as the ledger says.")
    assert f"from {events} events." in out

    async def damage(runtime: Runtime) -> None:
        async with runtime.database.transaction(None, "projector") as connection:
            await connection.execute("DELETE FROM noetl.projection WHERE projection = 'frame'")
            await connection.execute("UPDATE noetl.projection SET state = '{}' WHERE projection = 'loop'")

    with_runtime(damage)
    report = parsed(noetl("projections", "rebuild", "--json"))
    assert report["differing"] == 4
    assert [(s["added"], s["changed"], s["removed"]) for s in report["shards"] if s["added"]] == [(3, 1, 0)]
    assert parsed(noetl("projections", "rebuild", "--json"))["differing"] == 0


def test_one_shard_can_be_rebuilt(noetl: Noetl) -> None:
    recorded()
    report = parsed(noetl("projections", "rebuild", "--shard", "3", "--json"))
    assert [shard["shard"] for shard in report["shards"]] == [3]
    code, _, errors = noetl("projections", "rebuild", "--shard", "16")
    assert (code, errors) == (2, "error: there is no shard 16; shards are 0 to 15\n")


def test_a_fold_that_fails_is_shown_with_its_event_until_it_is_mended(
    noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refusing_folds.py").write_text(REFUSING)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "noetl.yaml").write_text("projections: {business_objects: ['refusing_folds:invoice']}\n")
    recorded()
    code, _, errors = noetl("projections", "run")
    assert (code, "not this one" in errors, "Traceback" in errors) == (2, True, False)
    status = parsed(noetl("projections", "status", "--json"))
    (failing,) = [shard for shard in status["shards"] if shard["failure"]]
    assert status["failing"] == [failing["shard"]]
    assert failing["failure"]["position"] == failing["checkpoint"] + 1
    assert failing["failure"]["event_id"] in failing["failure"]["message"]
    _, out, _ = noetl("projections", "status")
    assert f"shard {failing['shard']} stands still since" in out

    (tmp_path / "noetl.yaml").write_text("projections: {business_objects: ['refusing_folds:mended']}\n")
    assert noetl("projections", "run")[0] == 0
    assert parsed(noetl("projections", "status", "--json"))["failing"] == []


def test_a_new_fold_asks_for_a_rebuild(noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded()
    noetl("projections", "run")
    (tmp_path / "added_folds.py").write_text(REFUSING)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "noetl.yaml").write_text("projections: {business_objects: ['added_folds:mended']}\n")
    recorded()
    code, _, errors = noetl("projections", "run")
    assert (code, "business_object/invoice (none, now version 1)" in errors) == (1, True)
    assert "hint: run `noetl projections rebuild`" in errors
    assert noetl("projections", "rebuild")[0] == 0
    recorded()
    assert noetl("projections", "run")[0] == 0


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_following_projects_until_it_is_told_to_stop(noetl: Noetl, told: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "noetl", "projections", "run", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
        text=True,
    ) as following:
        assert following.stderr is not None
        assert following.stderr.readline() == "Projecting; interrupt to stop.\n"
        recorded()
        with_runtime(projected)
        following.send_signal(told)
        out, errors = following.communicate(timeout=30)
    assert (following.returncode, out, errors) == (0, "Stopped.\n", "")


async def projected(runtime: Runtime) -> None:
    """Wait until the projections cover the ledger; the server sees the checkpoints move."""
    head: Mark = await runtime.ledger.head()
    async with asyncio.timeout(30):
        while not (await runtime.projections.checkpoints()).covers(head):
            pass


def test_help_shows_examples_for_every_command(noetl: Noetl) -> None:
    for command in ("status", "run", "rebuild"):
        code, out, _ = noetl("projections", command, "--help")
        assert (code, f"noetl projections {command}" in out.partition("Examples:")[2]) == (0, True)
