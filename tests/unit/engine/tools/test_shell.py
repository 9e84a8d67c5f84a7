"""The shell tool: what commands print, how they end, and that nothing of them stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.tools.port import Call
from noetl.engine.tools.programs import process
from noetl.engine.tools.programs.shell import ShellTool

CallOf = Callable[..., Call]
tool = ShellTool()


async def test_a_command_gives_its_output_and_exit_code(call_of: CallOf) -> None:
    outcome = await tool.run(call_of("shell", command="echo out; echo err >&2"))
    assert (outcome.status, outcome.data) == ("ok", {"stdout": "out\n", "stderr": "err\n", "exit_code": 0})


async def test_commands_run_in_sequence_until_one_fails(call_of: CallOf) -> None:
    outcome = await tool.run(call_of("shell", cmds=["echo one", "echo two; exit 3", "echo three"]))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("unknown", "exit_3", False)
    assert "command 2 of 3" in outcome.error.message
    assert outcome.data == {"stdout": "one\ntwo\n", "stderr": "", "exit_code": 3}


async def test_commands_know_their_directory_and_a_clean_environment(
    call_of: CallOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_SECRET", "s")
    call = call_of("shell", command="pwd; env", cwd=str(tmp_path), env={"REGION": "eu", "COUNT": 3, "ON": True})
    lines = (await tool.run(call)).data["stdout"].splitlines()
    assert Path(lines[0]).samefile(tmp_path)  # noqa: ASYNC240
    assert {"REGION=eu", "COUNT=3", "ON=true"} <= set(lines)
    assert not [line for line in lines if "NOETL" in line]


async def test_another_shell_may_be_named(call_of: CallOf) -> None:
    outcome = await tool.run(call_of("shell", command="echo $((1 + 1)) ${0##*/}", shell="/bin/bash"))
    assert outcome.data["stdout"] == "2 bash\n"
    outcome = await tool.run(call_of("shell", command="true", shell="/no/shell"))
    assert outcome.error is not None
    assert outcome.error.code == "process_not_started"


async def test_output_is_kept_up_to_a_bound_and_without_capture_not_at_all(call_of: CallOf) -> None:
    outcome = await tool.run(call_of("shell", command="head -c 3000000 /dev/zero | tr '\\0' x"))
    assert len(outcome.data["stdout"]) == process.MAX_OUTPUT
    assert outcome.helpers["shell"] == {"truncated": True}
    outcome = await tool.run(call_of("shell", command="echo out", capture=False))
    assert outcome.data == {"stdout": "", "stderr": "", "exit_code": 0}


async def test_a_command_that_takes_too_long_is_ended_and_what_it_printed_is_kept(
    call_of: CallOf, processes: Any
) -> None:
    outcome = await tool.run(call_of("shell", command="echo $$; sleep 600", timeout_seconds=0.3))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("timeout", True)
    assert outcome.data["exit_code"] is None
    assert not processes.run(int(outcome.data["stdout"]))


async def test_cancelling_ends_the_whole_group_even_one_that_ignores_the_polite_signal(
    call_of: CallOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Any
) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.1)
    command = f"trap '' TERM; sleep 600 & echo $$ $! > {processes.place}; wait; wait; sleep 600"
    call = asyncio.ensure_future(tool.run(call_of("shell", command=command, timeout=None)))
    pids = await processes.written()
    assert processes.run(*pids)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await processes.ended(*pids)


async def test_a_command_has_time_to_clean_up_when_it_is_cancelled(
    call_of: CallOf, tmp_path: Path, processes: Any
) -> None:
    note = tmp_path / "note"
    command = f"trap 'echo tidy > {note}; exit 0' TERM; echo $$ > {processes.place}; sleep 600 & wait"
    call = asyncio.ensure_future(tool.run(call_of("shell", command=command, timeout=None)))
    await processes.written()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert note.read_text() == "tidy\n"


async def test_what_a_command_leaves_in_the_background_ends_with_it(call_of: CallOf, processes: Any) -> None:
    outcome = await tool.run(call_of("shell", command="sleep 600 & echo $!"))
    assert outcome.status == "ok"
    assert await processes.ended(int(outcome.data["stdout"]))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "either cmds or command"),
        ({"cmds": [], "command": None}, "cmds is a text or a list"),
        ({"cmds": "true", "command": "true"}, "either cmds or command"),
        ({"command": "true", "cwd": "/no/where"}, "/no/where"),
        ({"command": "true", "env": ["A=1"]}, "env is a mapping"),
        ({"command": "true", "timeout_seconds": "soon"}, "timeout_seconds"),
    ],
)
async def test_options_that_make_no_sense_are_named(call_of: CallOf, options: dict[str, object], word: str) -> None:
    outcome = await tool.run(call_of("shell", options=options))
    assert outcome.error is not None
    assert outcome.error.kind == "schema"
    assert word in outcome.error.message
