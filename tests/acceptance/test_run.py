"""`noetl run` from end to end: playbooks that complete, fail, are wrong, call others, and are stopped on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Noetl = Callable[..., tuple[int, str, str]]
Begin = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.service


def playbook(name: str, workload: str, workflow: str) -> str:
    """Return the text of a playbook under demo/."""
    return (
        f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: demo/{name}}}\n"
        f"workload: {workload}\nworkflow:\n{workflow}"
    )


HELLO = playbook(
    "hello",
    "{name: world}",
    """\
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: greet}]}
  - step: greet
    tool: {kind: python, input: {name: "{{ workload.name }}"}, code: 'result = {"text": "hello " + name}'}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop}
""",
)
LOOP = playbook(
    "loop",
    "{rows: 40, bad: -1}",
    """\
  - step: each
    loop: {in: "{{ range(workload.rows) }}", iterator: row, spec: {mode: parallel, max_in_flight: 4}}
    tool:
      kind: python
      input: {row: "{{ iter.row }}", bad: "{{ workload.bad }}"}
      code: |
        if row == bad:
            raise ValueError(f"row {row} is bad")
        result = row
    next: {arcs: [{step: sum, when: "{{ event.name == 'loop.done' }}"}]}
  - step: sum
    tool: {kind: python, input: {each: "{{ each }}"}, code: "result = each['completed']"}
""",
)
PARENT = playbook(
    "parent",
    "{name: parent}",
    """\
  - step: call
    tool: {kind: playbook, path: demo/hello, payload: {name: "{{ workload.name }}"}, return_step: greet}
    next: {arcs: [{step: shout}]}
  - step: shout
    tool: {kind: python, input: {text: "{{ call.text }}"}, code: 'result = text + "!"'}
""",
)
WAIT = playbook(
    "wait",
    "{}",
    """\
  - step: wait
    tool: {kind: shell, command: sleep 60}
""",
)
BAD = playbook("bad", "{}", "  - step: one\n    tool: {kind: noop}\n    next: {arcs: [{step: tow}]}\n")


@pytest.fixture(autouse=True)
def playbooks(tmp_path: Path) -> None:
    for name, text in {"hello": HELLO, "loop": LOOP, "parent": PARENT, "wait": WAIT, "bad": BAD}.items():
        (tmp_path / f"{name}.yaml").write_text(text)


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts commands in processes of their own; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def begun(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "noetl", *arguments]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begun
    for process in started:
        process.kill()
        process.communicate()


def test_a_playbook_runs_and_says_what_it_did(noetl: Noetl) -> None:
    code, output, errors = noetl("run", "hello.yaml", "--set", "name=moon")
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "start: entered"
    assert lines[1].startswith("start: done in ")
    assert lines[6].startswith("COMPLETED demo/hello version 1 in ")
    assert lines[7:9] == ['workload: {"name": "moon"}', 'result: {"text": "hello moon"}']
    assert "look on with `noetl executions show " in lines[9]


def test_quiet_shows_the_end_alone_and_json_nothing_but_itself(noetl: Noetl) -> None:
    assert noetl("run", "hello.yaml", "--quiet")[1].startswith("COMPLETED demo/hello")
    facts = json.loads(noetl("run", "hello.yaml", "--json")[1])
    assert isinstance(facts["execution_id"], str)
    wanted = {"status": "COMPLETED", "path": "demo/hello", "version": 1, "workload": {"name": "world"}, "swallowed": 0}
    assert {name: facts[name] for name in wanted} == wanted


def test_a_loop_counts_its_rows_and_frames(noetl: Noetl) -> None:
    code, output, _ = noetl("run", "loop.yaml")
    assert code == 0
    assert "each: entered, 40 rows\n" in output
    assert "result: 40\n" in output
    assert "rows: 40 in " in output


def test_a_loop_takes_what_it_does_not_say_from_the_settings(noetl: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_FRAME_POLICY_DEFAULTS__LOOP__SIZE", "2")
    code, out, _ = noetl("run", "loop.yaml", "--json")
    assert (code, json.loads(out)["frames"]) == (0, 20)


def test_errors_that_were_let_pass_are_told(noetl: Noetl) -> None:
    code, output, _ = noetl("run", "loop.yaml", "--set", "bad=7")
    assert code == 0
    assert "1 error was let pass: `noetl why " in output
    assert ", 1 of them failed" in output


def test_a_failing_playbook_exits_with_1_and_its_reason(noetl: Noetl, tmp_path: Path) -> None:
    (tmp_path / "fail.yaml").write_text(HELLO.replace("result = ", "raise ValueError(name) #"))
    code, output, errors = noetl("run", "fail.yaml")
    assert (code, errors) == (1, "")
    assert "greet: failed (" in output
    assert "FAILED demo/hello version 1" in output
    assert "\nerror: ValueError: world" in output
    facts = json.loads(noetl("run", "fail.yaml", "--json")[1])
    assert facts["status"] == "FAILED"


def test_a_wrong_playbook_exits_with_2_and_says_where_before_anything_starts(
    noetl: Noetl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    code, output, errors = noetl("run", "bad.yaml")
    assert (code, output) == (2, "")
    assert errors == "error: bad.yaml:8:26: error unknown_step: there is no step tow (known: one)\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.yaml"], "there is no file nowhere.yaml"),
        (["demo/nowhere"], "there is no file demo/nowhere, and the catalog has no playbook demo/nowhere"),
        (["."], ". is a directory"),
        (["hello.yaml", "--set", "name"], "--set 'name' is no NAME=VALUE"),
        (["hello.yaml", "--payload", "{"], "--payload is no JSON"),
    ],
)
def test_wrong_input_exits_with_2(arguments: list[str], said: str, noetl: Noetl) -> None:
    code, output, errors = noetl("run", *arguments)
    assert (code, output) == (2, "")
    assert errors.startswith(f"error: {said}")


def test_a_database_that_cannot_be_reached_exits_with_3(noetl: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgresql://nobody:hunter2@127.0.0.1:1/none")
    code, output, errors = noetl("run", "hello.yaml")
    assert (code, output) == (3, "")
    assert errors.startswith("error: PostgreSQL does not answer")
    assert "hunter2" not in errors


def test_a_dry_run_shows_the_workload_and_runs_nothing(noetl: Noetl) -> None:
    code, output, errors = noetl("run", "hello.yaml", "--dry-run", "--set", "nmae=x")
    assert code == 0
    assert '"name": "world"' in output
    assert errors.startswith("warning: the playbook's workload has no nmae")
    assert json.loads(noetl("run", "hello.yaml", "--dry-run", "--json")[1])["workload"] == {"name": "world"}
    assert noetl("executions", "list", "--json")[1] == "[]\n"


def test_a_dry_run_renders_the_workload_and_says_what_cannot_be(noetl: Noetl, tmp_path: Path) -> None:
    workload = "{file: 'f_{{ execution_id }}_{{ workload.x }}', x: 1}"
    made = playbook("made", workload, "  - {step: a, tool: {kind: noop}}\n")
    (tmp_path / "made.yaml").write_text(made)
    shown = json.loads(noetl("run", "made.yaml", "--dry-run", "--json", "--set", "x={{ y }}")[1])["workload"]
    assert shown == {"file": "f_<execution_id>_{{ y }}", "x": "{{ y }}"}
    (tmp_path / "made.yaml").write_text(made.replace("workload.x", "workload.nobody"))
    code, output, errors = noetl("run", "made.yaml", "--dry-run")
    assert (code, output) == (2, "")
    assert "field workload.file: 'workload.nobody' is undefined" in errors


def test_a_playbook_of_the_catalog_calls_another_and_uses_its_result(noetl: Noetl) -> None:
    noetl("catalog", "register", "hello.yaml", "parent.yaml")
    facts = json.loads(noetl("run", "demo/parent@1", "--json")[1])
    assert (facts["status"], facts["result"]) == ("COMPLETED", "hello parent!")
    assert noetl("verify")[0] == 0


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_cancelled_in_the_ledger(received: signal.Signals, noetl: Noetl, begin: Begin) -> None:
    run = begin("run", "wait.yaml")
    assert run.stdout is not None
    assert run.stdout.readline() == "wait: entered\n"
    run.send_signal(received)
    _, errors = run.communicate()
    facts: dict[str, Any] = json.loads(noetl("executions", "show", "last", "--json")[1])
    assert (facts["status"], facts["error"], facts["steps"][0]["status"]) == ("CANCELLED", "interrupted", "stopped")
    assert errors.splitlines() == [f"execution {facts['execution_id']} was cancelled", "", "interrupted"]
    assert run.returncode == 130


def test_a_run_is_cancelled_from_another_process(noetl: Noetl, begin: Begin) -> None:
    run = begin("run", "wait.yaml", "--json")
    while noetl("events", "last", "--type", "command.issued", "--limit", "1", "--follow")[0]:
        assert run.poll() is None  # the execution is not there yet
    code, output, _ = noetl("executions", "cancel", "last", "--reason", "enough")
    assert (code, output.endswith(" is cancelled\n")) == (0, True)
    printed, errors = run.communicate()
    facts = json.loads(printed)
    assert (run.returncode, facts["status"], facts["error"], errors) == (1, "CANCELLED", "enough", "")
