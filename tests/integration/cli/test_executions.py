"""`noetl executions` as a user meets it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cli.conftest import HELLO

from noetl.testing.engines.short_leases import open_short_leased

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

PARENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: demo/parent}
workflow:
  - step: call
    tool: {kind: playbook, wait: true, path: demo/hello}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: [1, 2], iterator: n}
    tool: {kind: noop}
"""
FAILING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: failing, path: demo/failing}
workload: {bad: true}
workflow:
  - step: begin
    tool: {kind: noop}
    next: {arcs: [{step: check}]}
  - step: check
    tool:
      kind: python
      input: {bad: "{{ workload.bad }}"}
      code: |
        if bad:
            raise ValueError("out of luck")
        result = "in luck"
"""


def test_executions_are_listed_newest_first_and_by_status_and_path(noetl: Noetl, tmp_path: Path) -> None:
    (tmp_path / "failing.yaml").write_text(FAILING)
    assert noetl("executions", "list", "--json")[1] == "[]\n"
    first = json.loads(noetl("run", "hello.yaml", "--json")[1])["execution_id"]
    second = json.loads(noetl("run", "failing.yaml", "--json")[1])["execution_id"]

    def listed(*arguments: str) -> list[str]:
        return [one["execution_id"] for one in json.loads(noetl("executions", "list", "--json", *arguments)[1])]

    assert listed() == [second, first]
    assert listed("--limit", "1") == [second]
    assert listed("--status", "failed") == [second]
    assert listed("--path", "demo/he") == [first]
    table = noetl("executions", "list")[1].splitlines()
    assert table[1].split()[:3] == [second, "FAILED", "demo/failing"]
    assert "out of luck" in table[1]


def test_an_execution_is_shown_with_its_steps_loops_result_and_error(noetl: Noetl, tmp_path: Path) -> None:
    noetl("run", "hello.yaml", "--quiet", "--set", "times=5")
    shown = noetl("executions", "show", "last")[1]
    assert shown.startswith("COMPLETED demo/hello version 1 in ")
    assert 'workload: {"name": "world", "times": 5}' in shown
    assert [line.split()[:4] for line in shown.splitlines()[-2:]] == [
        ["greet", "1", "completed", "1"],
        ["each", "1", "completed", "1"],
    ]
    assert "5 of 5" in shown
    facts = json.loads(noetl("executions", "show", "last", "--json")[1])
    assert facts["results"]["greet"]["data"] == {"text": "hello world"}
    assert [(step["step"], step["rows"], step["done"]) for step in facts["steps"]] == [
        ("greet", None, 0),
        ("each", 5, 5),
    ]
    (tmp_path / "failing.yaml").write_text(FAILING)
    noetl("run", "failing.yaml", "--quiet")
    facts = json.loads(noetl("executions", "show", "last", "--json")[1])
    assert (facts["status"], facts["failed_step"]) == ("FAILED", "check")
    assert "out of luck" in facts["error"]
    assert [(step["step"], step["status"]) for step in facts["steps"]] == [("begin", "completed"), ("check", "failed")]
    assert "step.exited" in noetl("executions", "events", "last")[1]


def test_an_execution_is_run_again_from_a_step_with_another_value(noetl: Noetl, tmp_path: Path) -> None:
    (tmp_path / "failing.yaml").write_text(FAILING)
    before = json.loads(noetl("run", "failing.yaml", "--json")[1])["execution_id"]
    code, output, _ = noetl("executions", "rerun", before, "--from", "check", "--set", "bad=false")
    assert code == 0
    assert "begin" not in output
    assert 'result: "in luck"' in output
    facts = json.loads(noetl("executions", "show", "last", "--json")[1])
    assert (facts["rerun_of"], facts["workload"], facts["status"]) == (before, {"bad": False}, "COMPLETED")
    code, _, errors = noetl("executions", "rerun", before, "--from", "nowhere")
    assert (code, errors.splitlines()[0]) == (2, "error: the playbook demo/failing has no step 'nowhere'")
    assert errors.splitlines()[1] == "hint: its steps are begin, check"
    code, _, errors = noetl("executions", "cancel", "77")
    assert (code, errors.splitlines()[-1]) == (1, "hint: `noetl executions list` shows what there is")


def test_what_has_ended_cannot_be_cancelled(noetl: Noetl) -> None:
    noetl("run", "hello.yaml", "--quiet")
    code, output, errors = noetl("executions", "cancel", "last")
    assert (code, output) == (1, "")
    assert errors.endswith("has ended already: COMPLETED\n")


def test_last_is_what_was_asked_for_and_not_what_it_started(noetl: Noetl, tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text(PARENT)
    noetl("catalog", "register", "hello.yaml")
    parent = json.loads(noetl("run", "parent.yaml", "--json")[1])["execution_id"]
    listed = json.loads(noetl("executions", "list", "--json")[1])
    assert [(one["path"], one["parent_execution_id"]) for one in listed] == [
        ("demo/hello", parent),
        ("demo/parent", None),
    ], "the child is the newest"
    assert json.loads(noetl("executions", "show", "last", "--json")[1])["execution_id"] == parent
    assert "demo/parent" in noetl("why", "last")[1]
    assert json.loads(noetl("executions", "plot", "last", "--json")[1])["execution_id"] == parent


def test_cancelling_what_has_ended_stops_what_it_started_and_says_how_much(
    noetl: Noetl, owner_url: str, tmp_path: Path
) -> None:
    """INV-44."""
    parent = asyncio.run(begun(owner_url, tmp_path / ".noetl", 22))
    assert noetl("executions", "cancel", parent, "--no-cascade")[:2] == (0, f"execution {parent} is cancelled\n")
    code, output, errors = noetl("executions", "cancel", parent)
    assert code == 0
    lines = output.splitlines()
    assert (len(lines), lines[-1]) == (21, "and 2 more")
    ended = f"execution {parent} has ended already: CANCELLED"
    assert errors == f"{ended}; 22 executions below it still ran, and stopped now\n"
    assert noetl("executions", "cancel", parent)[::2] == (1, f"{ended}\n")


async def begun(url: str, home: Path, children: int) -> str:
    """Start an execution with children, and nobody who works for them, and return its id."""
    async with open_short_leased(url, home) as driven:
        entry = (await driven.engine.catalog.register(driven.runtime.scope, HELLO)).entry
        first = await driven.engine.start(driven.runtime.scope, entry, requested_by="tests")
        for _ in range(children):
            await driven.engine.start(
                driven.runtime.scope, entry, requested_by="tests", parent_execution_id=first.execution_id
            )
        return str(first.execution_id)


def test_an_execution_that_does_not_exist_is_an_error(noetl: Noetl) -> None:
    assert noetl("executions", "show", "604876797720658689")[0] == 1
    assert noetl("executions", "cancel", "604876797720658689")[0] == 1
    assert noetl("executions", "show", "nonsense")[0] == 2
