"""The processes of the python tool: limits that hold, ends that are final, and a worker that survives all of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.port import Call
from noetl.engine.tools.python.pool import Answer, PythonPool, Request, Variant
from noetl.engine.tools.python.tool import PythonTool
from noetl.engine.tools.resources import WorkerResources

CallOf = Callable[..., Call]

STARTS_A_CHILD = """
import os, subprocess, time
program = subprocess.Popen(["sleep", "600"])
with open(place, "w") as note:
    note.write(f"{os.getpid()} {program.pid}\\n")
"""


@pytest.fixture
def tool(tmp_path: Path) -> PythonTool:
    return PythonTool(processes=2, cache=tmp_path / "cache")


def error_of(outcome: object) -> Problem:
    error = getattr(outcome, "error", None)
    assert isinstance(error, Problem), outcome
    return error


async def test_an_endless_loop_is_killed_at_its_time_limit(tool: PythonTool, call_of: CallOf, processes: Any) -> None:
    """INV-47."""
    code = "import os\nprint(os.getpid())\nwhile True: pass"
    outcome = await tool.run(call_of("python", code=code, timeout=0.5))
    error = error_of(outcome)
    assert (error.kind, error.code, error.retryable) == ("timeout", "code_timeout", True)
    assert not processes.run(int(outcome.helpers["py"]["stdout"]))
    assert (await tool.run(call_of("python", code="result = 1"))).data == 1


class HastyLoop(asyncio.SelectorEventLoop):
    """Its timers fire well before their time, as those of other loops do by a little."""

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when - 60.0, callback, *args, context=context)


def test_a_timer_that_fires_early_makes_a_time_out_no_crash() -> None:
    async def answer() -> Answer:
        pool = PythonPool(1, 10)
        try:
            request = Request("endless", "while True: pass", {}, {})
            return await pool.run(Variant("tests", sys.executable, 512), request, 60.3)
        finally:
            await pool.aclose()

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        assert runner.run(answer()).how == "timeout"


async def test_code_that_catches_everything_is_killed_all_the_same(tool: PythonTool, call_of: CallOf) -> None:
    code = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
while True:
    try:
        time.sleep(600)
    except BaseException:
        pass
"""
    assert error_of(await tool.run(call_of("python", code=code, timeout=0.5))).kind == "timeout"


async def test_memory_beyond_the_cap_is_a_problem_and_the_worker_goes_on(tool: PythonTool, call_of: CallOf) -> None:
    code = "kept = []\nwhile True:\n    kept.append('x' * 1_000_000)"
    error = error_of(await tool.run(call_of("python", code=code, memory_mb=128)))
    assert (error.kind, error.code, error.exception_type) == ("unknown", "memory_limit", "MemoryError")
    outcome = await tool.run(call_of("python", code="result = len('x' * 1_000_000)", memory_mb=128))
    assert outcome.data == 1_000_000


async def test_cancelling_a_call_kills_its_process_and_what_that_started(
    tool: PythonTool, call_of: CallOf, processes: Any
) -> None:
    code = STARTS_A_CHILD + "time.sleep(600)"
    call = asyncio.ensure_future(
        tool.run(call_of("python", code=code, input={"place": str(processes.place)}, timeout=None))
    )
    pids = await processes.written()
    assert processes.run(*pids)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not processes.run(pids[0])
    assert await processes.ended(*pids)


async def test_what_code_leaves_running_ends_with_its_call(tool: PythonTool, call_of: CallOf, processes: Any) -> None:
    call = call_of("python", code=STARTS_A_CHILD + "result = 1", input={"place": str(processes.place)})
    assert (await tool.run(call)).data == 1
    assert await processes.ended(*await processes.written())


async def test_a_process_that_still_has_threads_is_not_used_again(
    call_of: CallOf, tmp_path: Path, processes: Any
) -> None:
    tool = PythonTool(processes=1, cache=tmp_path)
    code = "import os, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nresult = os.getpid()"
    pid = (await tool.run(call_of("python", code=code))).data
    assert (await tool.run(call_of("python", code="import os\nresult = os.getpid()"))).data != pid
    assert not processes.run(pid)


async def test_a_process_killed_in_mid_call_is_a_problem_worth_another_try(
    tool: PythonTool, call_of: CallOf, processes: Any
) -> None:
    code = STARTS_A_CHILD + "time.sleep(600)"
    call = asyncio.ensure_future(tool.run(call_of("python", code=code, input={"place": str(processes.place)})))
    pids = await processes.written()
    os.kill(pids[0], signal.SIGKILL)
    error = error_of(await call)
    assert (error.code, error.retryable) == ("process_died", True)
    assert "SIGKILL" in error.message
    assert await processes.ended(*pids)
    assert (await tool.run(call_of("python", code="result = 1"))).data == 1


async def test_a_process_that_died_while_idle_is_replaced_without_notice(
    call_of: CallOf, tmp_path: Path, processes: Any
) -> None:
    tool = PythonTool(processes=1, cache=tmp_path)
    pid = (await tool.run(call_of("python", code="import os\nresult = os.getpid()"))).data
    os.kill(pid, signal.SIGKILL)
    assert await processes.ended(pid)
    assert (await tool.run(call_of("python", code="result = 1"))).data == 1


async def test_a_crash_of_the_interpreter_is_told_with_its_signal(tool: PythonTool, call_of: CallOf) -> None:
    error = error_of(await tool.run(call_of("python", code="import os\nos.abort()")))
    assert (error.code, error.retryable) == ("process_died", True)
    assert "SIGABRT" in error.message
    error = error_of(await tool.run(call_of("python", code="import os\nos._exit(7)")))
    assert "exited with code 7" in error.message


async def test_a_process_is_replaced_after_its_share_of_calls(call_of: CallOf, tmp_path: Path, processes: Any) -> None:
    tool = PythonTool(processes=1, calls_per_process=3, cache=tmp_path)
    code = "import os\nresult = os.getpid()"
    pids = [(await tool.run(call_of("python", code=code))).data for _ in range(7)]
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6]
    assert not processes.run(pids[0])


async def test_a_process_is_reused_after_an_exception_in_the_code(call_of: CallOf, tmp_path: Path) -> None:
    tool = PythonTool(processes=1, cache=tmp_path)
    pid = (await tool.run(call_of("python", code="import os\nresult = os.getpid()"))).data
    for _ in range(2):
        assert error_of(await tool.run(call_of("python", code="1 / 0"))).exception_type == "ZeroDivisionError"
    assert (await tool.run(call_of("python", code="import os\nresult = os.getpid()"))).data == pid


async def test_waiting_for_a_free_process_counts_for_the_time_limit(
    call_of: CallOf, tmp_path: Path, processes: Any
) -> None:
    tool = PythonTool(processes=1, cache=tmp_path)
    code = STARTS_A_CHILD + "time.sleep(600)"
    long = asyncio.ensure_future(
        tool.run(call_of("python", code=code, input={"place": str(processes.place)}, timeout=None))
    )
    await processes.written()
    error = error_of(await tool.run(call_of("python", code="result = 1", timeout=0.05)))
    assert (error.kind, error.code) == ("timeout", "pool_busy")
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert (await tool.run(call_of("python", code="result = 1"))).data == 1


async def test_other_kinds_of_process_make_room_for_each_other(call_of: CallOf, tmp_path: Path, processes: Any) -> None:
    tool = PythonTool(processes=2, cache=tmp_path)
    code = "import os\nresult = os.getpid()"
    pids = [(await tool.run(call_of("python", code=code, memory_mb=memory))).data for memory in (200, 300, 400)]
    assert [processes.run(pid) for pid in pids] == [False, True, True]


async def test_no_process_outlives_the_resources_of_its_worker(
    call_of: CallOf, resources: WorkerResources, processes: Any
) -> None:
    tool = PythonTool(processes=2)
    pid = (await tool.run(call_of("python", code="import os\nresult = os.getpid()"))).data
    assert processes.run(pid)
    await resources.aclose()
    assert not processes.run(pid)


async def test_a_killed_worker_takes_its_busy_processes_along(processes: Any) -> None:
    """INV-47."""
    worker = f"""
import asyncio, sys
from noetl.engine.tools.python.pool import PythonPool, Request, Variant
code = {STARTS_A_CHILD + "while True: pass"!r}
asked = Request("digest", code, {{"place": {str(processes.place)!r}}}, {{}})
asyncio.run(PythonPool(1, 10).run(Variant("owner", sys.executable, 256), asked, None))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", worker)
    try:
        pids = await processes.written()
        assert processes.run(*pids)
    finally:
        process.kill()
        await process.wait()
    assert await processes.ended(*pids)
