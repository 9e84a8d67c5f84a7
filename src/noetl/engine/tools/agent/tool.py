"""The `agent` tool for agents that are programs: an entrypoint and a payload go in, its answer comes out in an envelope.

They run in the processes of the python tool. Agents that are playbooks are run as children, by the worker.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from noetl.engine.tools.agent.envelope import FRAMEWORKS, SOURCE, answered, mapping, payload_of
from noetl.engine.tools.outcome import Outcome, refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.python.tool import PythonTool
from noetl.errors import NoetlError, Unsupported

_PROGRAM: Final = Path(__file__).with_name("program.py")
_HANDED_ON: Final = ("deps", "memory_mb")


class AgentTool:
    """Runs agents of the framework `custom`."""

    kind: ClassVar[str] = SOURCE

    def __init__(self, **python_settings: Any) -> None:
        self._python = PythonTool(**python_settings)
        self._code = _PROGRAM.read_text()

    async def run(self, call: Call) -> Outcome:
        """Load and call the agent of one call."""
        started = time.perf_counter()
        try:
            work = msgspec.structs.replace(
                call, kind="python", input={"agent": _plan(call)}, options=self._options(call)
            )
        except NoetlError as error:
            outcome = refusal(error, SOURCE)
        else:
            outcome = await self._python.run(work)
        seconds = time.perf_counter() - started
        return answered(call, outcome, execution_id=str(call.execution_id), seconds=seconds, more={})

    def _options(self, call: Call) -> dict[str, Any]:
        given = {name: call.options[name] for name in _HANDED_ON if call.options.get(name) is not None}
        return {"code": self._code, **given}


def _plan(call: Call) -> dict[str, Any]:
    options = call.options
    if options.get("framework") != "custom":
        raise Unsupported(
            f"framework {options.get('framework')!r} is none of {', '.join(FRAMEWORKS)}",
            hint="write framework: custom, and let a function of your own run the agent",
        )
    return {
        "entrypoint": str(options.get("entrypoint")),
        "mode": options.get("entrypoint_mode"),
        "args": dict(mapping(call, "entrypoint_args")),
        "method": options.get("invoke_method"),
        "payload": payload_of(call),
        "kwargs": dict(mapping(call, "invoke_kwargs")),
    }
