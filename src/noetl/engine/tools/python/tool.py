"""The `python` kind: code and its input go in, what the code returns comes out in plain JSON values.

The code runs in processes of its own, never in the worker: with a hard time limit, a bound on memory, a clean
environment and no descriptors, confined as `worker.isolation` says. That keeps the worker alive and its secrets its own; what
else the machine has is left open, and SECURITY.md says what.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from noetl.engine.tools.outcome import Outcome, Problem, failed, refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.engine.tools.programs.source import load_script
from noetl.engine.tools.python.packages import environment_with, interpreter_of
from noetl.engine.tools.python.pool import Answer, PythonPool, Request, Variant
from noetl.errors import InputError, NoetlError

DEFAULT_MEMORY_MB = 1024
_LEAST_MEMORY_MB = 64
_SCARCE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class PythonTool:
    """Runs users' Python in a pool of child interpreters that the calls of a worker share."""

    kind: ClassVar[str] = "python"

    def __init__(
        self, *, processes: int | None = None, calls_per_process: int = 1_000, cache: Path | None = None
    ) -> None:
        self._processes = processes or max(2, os.cpu_count() or 1)
        self._calls_per_process = calls_per_process
        self._cache = cache or Path.home() / ".cache" / "noetl" / "python"

    async def run(self, call: Call) -> Outcome:
        """Run the code of one call."""
        try:
            code = await _code(call)
            variant = await self._variant(call)
        except NoetlError as error:
            return refusal(error, self.kind)
        pool: PythonPool = await call.resources.get(("python", "pool"), self._open_pool)
        digest = hashlib.sha256(code.encode(errors="surrogatepass")).hexdigest()
        given = {**call.input, **call.views}
        request = Request(digest, code, given, call.scope, str(call.execution_id))
        try:
            answer = await pool.run(variant, request, ahead_of(call.timeout))
        except ValueError as problem:
            return failed("schema", f"the input cannot be passed to the code: {problem}", source=self.kind)
        except OSError as problem:
            message = f"{variant.executable} cannot be started: {problem.strerror}"
            again = problem.errno in _SCARCE
            return failed("unknown", message, source=self.kind, code="process_not_started", retryable=again)
        return _outcome(answer, call.timeout)

    async def _open_pool(self) -> PythonPool:
        return PythonPool(self._processes, self._calls_per_process)

    async def _variant(self, call: Call) -> Variant:
        deps = call.options.get("deps") or {}
        if not isinstance(deps, Mapping) or not set(deps) <= {"sys_path", "venv_path", "packages"}:
            raise InputError("deps takes a mapping of sys_path, venv_path and packages")
        memory_mb = call.options.get("memory_mb", DEFAULT_MEMORY_MB)
        if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < _LEAST_MEMORY_MB:
            raise InputError(f"memory_mb is a whole number of MiB, at least {_LEAST_MEMORY_MB}")
        packages, venv_path = _texts(deps, "packages"), deps.get("venv_path")
        executable = sys.executable
        if packages and venv_path:
            raise InputError("deps has both packages and venv_path: an environment is either made or given")
        if packages:
            executable = await environment_with(packages, self._cache, call.resources)
        elif venv_path:
            executable = interpreter_of(Path(str(venv_path)))
        return Variant(call.owner, executable, memory_mb, _texts(deps, "sys_path"))


async def _code(call: Call) -> str:
    code, script = call.options.get("code"), call.options.get("script")
    if (code is None) == (script is None):
        raise InputError("the python tool needs either code or script")
    if script is not None:
        return await load_script(script, call)
    if not isinstance(code, str):
        raise InputError(f"code is a text, not {type(code).__name__}")
    return code


def _texts(deps: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = deps.get(name) or ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise InputError(f"deps.{name} is a list of texts")
    return tuple(value)


def _outcome(answer: Answer, timeout: float | None) -> Outcome:
    helpers = {
        "py": {
            "stdout": answer.stdout.text,
            "stderr": answer.stderr.text,
            "truncated": answer.stdout.truncated or answer.stderr.truncated,
        }
    }
    source = PythonTool.kind
    if answer.how == "answered":
        said = answer.body.get("problem")
        if said is None:
            return Outcome(data=answer.body.get("result"), helpers=helpers)
        return Outcome(status="error", error=Problem(source=source, **said), helpers=helpers)
    if answer.how == "no_child":
        message = f"no process of the pool became free within {timeout:g} seconds; allow more processes"
        return failed("timeout", message, helpers=helpers, source=source, code="pool_busy", retryable=True)
    if answer.how == "timeout":
        message = f"the code did not end within {timeout:g} seconds and was killed"
        return failed("timeout", message, helpers=helpers, source=source, code="code_timeout", retryable=True)
    message = f"the process that ran the code {_end(answer.exit_code)} before it answered"
    return failed("unknown", message, helpers=helpers, source=source, code="process_died", retryable=True)


def _end(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        try:
            return f"was ended by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"was ended by signal {-exit_code}"
    return f"exited with code {exit_code}"
