"""A playbook that calls itself without end, as its author meets it: warned of, ended at the limit, interrupted, cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from noetl.testing.engines.short_leases import until

Noetl = Callable[..., tuple[int, str, str]]
Begin = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.service

LIMIT = "NOETL_RUNTIME__SCHEDULER__MAX_CHILD_DEPTH"
SOON_SECONDS = 20.0
REFUSAL = "the playbook a/rec is not started: it would be 4 levels below the first execution, and runtime.scheduler.max_child_depth is 3"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: rec, path: a/rec}\nworkflow:\n"
SUSPENDED = HEAD + "  - step: c\n    tool: {kind: playbook, wait: true, path: a/rec}\n"
DETACHED = SUSPENDED.replace("wait: true", "wait: false")
ON_A_WORKER = SUSPENDED.replace("kind: playbook,", "kind: playbook, set: {ctx.seen: true},")
SCOPED = {"noetl.tenant": "default", "noetl.organization": "default"}


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts commands in processes of their own; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def begun(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "noetl", *arguments],
            cwd=tmp_path, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begun
    for process in started:
        process.kill()
        process.communicate()


def requested(noetl: Noetl) -> list[tuple[str, dict[str, Any]]]:
    """Return every execution with what it was requested with, the deepest last."""
    listed = json.loads(noetl("executions", "list", "--json", "--limit", "1000")[1])
    found = []
    for one in listed:
        events = noetl("events", one["execution_id"], "--type", "execution.requested", "--json")[1]
        found.append((one["status"], json.loads(events.splitlines()[0])["meta"]))
    return sorted(found, key=lambda one: one[1]["depth"])


@pytest.mark.parametrize("text", [SUSPENDED, ON_A_WORKER], ids=["suspended", "on a worker"])
def test_a_playbook_that_calls_itself_fails_at_the_limit(
    noetl: Noetl, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-140."""
    monkeypatch.setenv(LIMIT, "3")
    (tmp_path / "rec.yaml").write_text(text)
    code, output, _ = noetl("check", "rec.yaml")
    assert code == 0
    column = text.splitlines()[5].index("path:") + 1
    assert f"rec.yaml:6:{column}: warning calls_itself: the step c runs its own playbook" in output

    code, output, errors = noetl("run", "rec.yaml", "--json")
    facts = json.loads(output)
    assert (code, facts["status"]) == (1, "FAILED")
    assert facts["error"].startswith("child execution ")
    assert facts["error"].endswith(REFUSAL)
    assert "warning calls_itself" in errors

    found = requested(noetl)
    assert [status for status, _ in found] == ["FAILED"] * 4
    assert [meta["depth"] for _, meta in found] == [0, 1, 2, 3]
    assert noetl("verify")[0] == 0


@pytest.mark.parametrize(
    "handled",
    [
        SUSPENDED + "    next: {arcs: [{step: last, when: \"{{ output.error.kind == 'depth_limit' }}\"}]}\n"
        "  - step: last\n    tool: {kind: noop}\n",
        ON_A_WORKER.replace(
            "kind: playbook,",
            "kind: playbook, spec: {policy: {rules: [{when: \"{{ output.status == 'error' and output.error.code =="
            " 'child_too_deep' }}\", then: {do: continue}}]}},",
        ),
    ],
    ids=["by an arc", "by a policy"],
)
def test_the_caller_decides_what_follows_from_the_limit(
    noetl: Noetl, handled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, "3")
    (tmp_path / "rec.yaml").write_text(handled)
    facts = json.loads(noetl("run", "rec.yaml", "--json")[1])
    assert facts["status"] == "COMPLETED", facts["error"]
    assert [status for status, _ in requested(noetl)] == ["COMPLETED"] * 4


@pytest.mark.parametrize("text", [SUSPENDED, DETACHED, ON_A_WORKER], ids=["suspended", "detached", "on a worker"])
def test_a_run_that_calls_itself_ends_with_the_first_interrupt(
    noetl: Noetl, begin: Begin, text: str, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-140."""
    monkeypatch.setenv(LIMIT, "1000000")
    (tmp_path / "rec.yaml").write_text(text)
    run = begin("run", "rec.yaml", "--quiet")
    asyncio.run(_many(owner_url))
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=SOON_SECONDS)
    assert run.returncode == 130
    assert asyncio.run(_count(owner_url, "SELECT count(*) FROM noetl.execution_head")) == 0
    assert noetl("verify")[0] == 0


async def _many(url: str) -> None:
    query = "SELECT count(*) FROM noetl.event WHERE event_type = 'execution.requested'"

    async def many() -> bool:
        return await _count(url, query) >= 30

    await until(many, "30 executions")


async def _count(url: str, query: str) -> int:
    connection = await asyncpg.connect(url, server_settings=SCOPED)
    try:
        return int(await connection.fetchval(query))
    finally:
        await connection.close()
