"""Agents that are functions: how they are found and called, and what their envelope holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.tools.agent.tool import AgentTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call

AGENTS = """
import os
class Agent:
    def __init__(self, model="small"):
        self.model = model
    async def run_async(self, payload):
        yield {"model": self.model}
        yield payload["text"].upper()
    def ask(self, text, loud=False):
        return [self.model, text, loud]
def by_name(text, times=1):
    return text * times
async def whole(payload):
    return {"pid_is_another": os.getpid() != payload["pid"]}
def anything(**given):
    return sorted(given)
def broken(text):
    raise LookupError(text)
"""

CallOf = Callable[..., Call]
Ask = Callable[..., Any]


@pytest.fixture
def ask(call_of: CallOf, tmp_path: Path) -> Ask:
    """Ask an agent of the module `agents`: `await ask("by_name", payload={...})`."""
    (tmp_path / "agents.py").write_text(AGENTS)
    tool = AgentTool(processes=1)

    async def run(name: str, **options: Any) -> Outcome:
        deps = {"sys_path": [str(tmp_path)]}
        given = {"framework": "custom", "entrypoint": f"agents:{name}", "deps": deps, **options}
        return await tool.run(call_of("agent", options=given, input={"text": "ab"}))

    return run


async def test_an_agent_is_called_as_its_parameters_say_and_answers_in_an_envelope(ask: Ask, tmp_path: Path) -> None:
    outcome = await ask("by_name", payload={"times": 2, "other": 1})
    assert outcome.data.pop("duration") >= 0
    assert outcome.data == {
        "status": "ok", "framework": "custom", "entrypoint": "agents:by_name", "data": "abab", "execution_id": "1",
    }  # fmt: skip

    async def data(name: str, **options: Any) -> Any:
        outcome = await ask(name, **options)
        assert outcome.error is None
        return outcome.data["data"]

    assert await data("whole", payload={"pid": os.getpid()}) == {"pid_is_another": True}
    assert await data("anything", payload={"b": 1}, invoke_kwargs={"c": 1}) == ["b", "c", "text"]
    assert await data("Agent") == [{"model": "small"}, "AB"]
    large = {"entrypoint_mode": "factory", "entrypoint_args": {"model": "large"}}
    assert await data("Agent", **large, invoke_method="ask", invoke_kwargs={"loud": True}) == ["large", "ab", True]
    assert await data("x", entrypoint=f"{tmp_path}/agents.py:by_name") == "ab"


async def test_a_failure_is_one_and_keeps_its_envelope(ask: Ask) -> None:
    outcome = await ask("broken")
    assert outcome.error is not None
    assert (outcome.status, outcome.error.exception_type, outcome.error.source) == ("error", "LookupError", "agent")
    assert (outcome.data["status"], outcome.data["data"]) == ("error", None)
    assert outcome.data["error"]["kind"] == "agent.execution"
    assert "ab" in outcome.data["error"]["message"]
    for entrypoint, said in (("agents:nobody", "AttributeError"), ("nothing", "neither module:function")):
        outcome = await ask("x", entrypoint=entrypoint)
        assert said in outcome.data["error"]["message"]
    outcome = await ask("by_name", framework="adk")
    assert (outcome.error.kind, outcome.data["error"]["kind"]) == ("schema", "agent.configuration")
