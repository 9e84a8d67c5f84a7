"""The `shell` kind: commands go in, what they printed and their exit code come out.

Commands run one after the other until one fails, in a process group of their own that ends with the task, in a clean
environment without the worker's settings and secrets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from noetl.engine.tools.outcome import Outcome, failed
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import MAX_OUTPUT, Ended, ahead_of, run_process


class ShellTool:
    """Runs commands through a shell."""

    kind: ClassVar[str] = "shell"

    async def run(self, call: Call) -> Outcome:
        """Run the commands of one call."""
        try:
            plan = _plan(call)
        except ValueError as problem:
            return failed("schema", str(problem), source=self.kind)
        limit = _shorter(ahead_of(call.timeout), call.options.get("timeout_seconds"))
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        outputs: list[Ended] = []
        for command in plan.commands:
            try:
                ended = await run_process(
                    [plan.shell, "-c", command], cwd=plan.cwd, env=plan.env, deadline=deadline, capture=plan.capture
                )
            except OSError as problem:
                message = f"the shell {plan.shell} cannot be started: {problem.strerror}"
                return failed("unknown", message, source=self.kind, code="process_not_started")
            outputs.append(ended)
            if ended.exit_code != 0:
                break
        return _outcome(outputs, plan)


class _Plan(NamedTuple):
    commands: list[str]
    shell: str
    cwd: str | None
    env: dict[str, str]
    timeout: float | None
    capture: bool


def _plan(call: Call) -> _Plan:
    options = call.options
    given = [options[name] for name in ("cmds", "command") if options.get(name) is not None]
    if len(given) != 1:
        raise ValueError("the shell tool needs either cmds or command")
    commands = [given[0]] if isinstance(given[0], str) else given[0]
    if not isinstance(commands, list | tuple) or not commands or not all(isinstance(each, str) for each in commands):
        raise ValueError("cmds is a text or a list of texts")
    cwd = options.get("cwd")
    if cwd is not None and not Path(str(cwd)).is_dir():
        raise ValueError(f"cwd: there is no directory {cwd}")
    env = options.get("env") or {}
    if not isinstance(env, Mapping):
        raise ValueError("env is a mapping of names to texts")
    return _Plan(
        commands=list(commands),
        shell=str(options.get("shell") or "/bin/sh"),
        cwd=None if cwd is None else str(cwd),
        env={str(name): _setting(value) for name, value in env.items() if value is not None},
        timeout=_shorter(call.timeout, options.get("timeout_seconds")),
        capture=options.get("capture") is not False,
    )


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def _shorter(timeout: float | None, seconds: Any) -> float | None:
    if seconds is None:
        return timeout
    try:
        own = float(seconds)
    except (TypeError, ValueError):
        own = -1.0
    if not own > 0:
        raise ValueError("timeout_seconds is a number of seconds above 0")
    return own if timeout is None else min(own, timeout)


def _outcome(outputs: list[Ended], plan: _Plan) -> Outcome:
    last = outputs[-1]
    data = {
        "stdout": "".join(each.stdout.text for each in outputs)[:MAX_OUTPUT],
        "stderr": "".join(each.stderr.text for each in outputs)[:MAX_OUTPUT],
        "exit_code": last.exit_code,
    }
    truncated = any(each.stdout.truncated or each.stderr.truncated for each in outputs)
    told: dict[str, Any] = {"source": ShellTool.kind, "data": data, "helpers": {"shell": {"truncated": truncated}}}
    at = f"command {len(outputs)} of {len(plan.commands)}" if len(plan.commands) > 1 else "the command"
    if last.exit_code is None:
        message = f"{at} did not end within {plan.timeout:g} seconds and was killed"
        return failed("timeout", message, code="command_timeout", retryable=True, **told)
    if last.exit_code < 0:
        message = f"{at} was ended by signal {-last.exit_code}"
        return failed("unknown", message, code=f"signal_{-last.exit_code}", retryable=True, **told)
    if last.exit_code:
        return failed("unknown", f"{at} ended with exit code {last.exit_code}", code=f"exit_{last.exit_code}", **told)
    return Outcome(data=data, helpers=told["helpers"])
