"""Whatever goes wrong, an execution ends, says why, and does so soon."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.plan.state import State
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Tool
from noetl.engine.tools.registry import load_tools
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


class BrokenTool:
    """A shell tool with a defect."""

    kind: ClassVar[str] = "shell"

    async def run(self, call: Call) -> Outcome:
        raise LookupError(f"a defect, quoting {call.options}")


def equip(monkeypatch: pytest.MonkeyPatch, **tools: Tool | None) -> None:
    """Let workers of this test have these tools in place of their own; None takes one away."""

    def loaded(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Tool]:
        found = {**load_tools(settings), **tools}
        return {kind: tool for kind, tool in found.items() if tool is not None}

    monkeypatch.setattr("noetl.runtime.assembly.engine.load_tools", loaded)


async def ended(playbooks: Playbooks, state: State) -> list[str]:
    """Return the last events of an execution, which must be one of an end."""
    events = [event["event_type"] for event in await playbooks.events(state.execution_id)]
    assert sum(kind in ("playbook.completed", "playbook.failed", "execution.failed") for kind in events) == 1
    return events


async def test_a_tool_that_raises_is_a_failed_task(playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch) -> None:
    equip(monkeypatch, shell=BrokenTool())
    step = await playbooks.run(playbook("workflow:\n  - step: a\n    tool: {kind: shell, command: echo}\n"))
    rows = await playbooks.run(
        playbook("""
        workflow:
          - step: a
            loop: {in: [1, 2, 3], iterator: n, spec: {frame: {row_concurrency: 3}}}
            tool: {kind: shell, command: echo}
        """)
    )

    assert step.status == "FAILED"
    assert step.error == "playbook tests/it, step a, task a: the shell tool broke off with LookupError"
    first = "row 0: playbook tests/it, step a, task a: the shell tool broke off with LookupError"
    assert (rows.status, rows.error) == ("FAILED", f"3 of 3 rows failed; first: {first}")
    await ended(playbooks, step)
    await ended(playbooks, rows)


async def test_a_kind_the_worker_has_no_tool_for_is_named(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    equip(monkeypatch, shell=None)
    state = await playbooks.run(playbook("workflow:\n  - step: a\n    tool: {kind: shell, command: echo}\n"))

    assert state.status == "FAILED"
    assert "this worker has no tool of the kind 'shell'" in (state.error or "")


class Withheld:
    """Lets a test act between two steps."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def wait(self, _request: web.Request) -> web.Response:
        self.reached.set()
        await self.open.wait()
        return web.json_response(1)


@pytest.mark.no_parity
@pytest.mark.parametrize(
    "after",
    [
        "tool: {kind: shell, command: 'echo {{ big.rows | length }}'}",
        "tool: {kind: noop}\n    next: {arcs: [{step: end, when: '{{ big.rows | length > 1 }}'}]}",
        "loop: {in: '{{ big.rows }}', iterator: row}\n    tool: {kind: noop}",
        "tool: {kind: artifact, action: get, input: {result_ref: '{{ big._ref }}'}}",
    ],
    ids=["worker", "arc", "loop", "artifact"],
)
async def test_a_payload_that_is_gone_ends_the_execution(playbooks: Playbooks, after: str) -> None:
    withheld = Withheld()
    app = web.Application()
    app.router.add_get("/", withheld.wait)
    async with TestServer(app) as server:
        body = "workload: {url: ''}\nworkflow:\n  - step: big\n    tool: {kind: python, code: \"result = {'rows': ['x' * 100] * 2000}\"}\n"
        body += "    next: {arcs: [{step: held}]}\n  - step: held\n    tool: {kind: http, url: '{{ url }}'}\n"
        body += f"    next: {{arcs: [{{step: after}}]}}\n  - step: after\n    {after}\n  - step: end\n    tool: {{kind: noop}}\n"
        state = await playbooks.start(playbook(body), {"url": str(server.make_url("/"))})
        await asyncio.wait_for(withheld.reached.wait(), 30)
        for path in (playbooks.home / "payloads").rglob("*"):
            if path.is_file():
                path.unlink()
        withheld.open.set()
        state = await playbooks.finished(state.execution_id)

    assert state.status == "FAILED"
    assert "payload" in (state.error or "") or "no object" in (state.error or ""), state.error
    await ended(playbooks, state)


async def test_values_that_cannot_be_recorded_fail_their_step(playbooks: Playbooks) -> None:
    bodies = [
        "tool: {kind: python, code: 'result = float(\"nan\")'}",
        "tool: {kind: python, code: 'result = [chr(0xD800)]'}",
        "tool: {kind: python, code: 'result = object()'}",
        "tool: {kind: noop, set: {ctx.x: '{{ 1e308 * 10 }}'}}",
        "tool: {kind: noop}\n    set: {ctx.x: '{{ 1e308 * 10 }}'}",
        "tool: {kind: python, code: 'result = 1'}\n    spec: {timeout: '{{ \"soon\" }}'}",
        "tool: {kind: postgres, auth: nobody, command: 'SELECT 1'}",
        "loop: {in: '{{ 5 }}', iterator: x}\n    tool: {kind: noop}",
        "loop: {in: [1, 2], iterator: x, spec: {max_in_flight: '{{ \"many\" }}', mode: parallel}}\n    tool: {kind: noop}",
        "loop: {in: [1, 2], iterator: x, spec: {frame: {row_concurrency: 2}}}\n    tool: {kind: noop, set: {ctx.x: '{{ 1e308 * 10 }}'}}",
        "loop: {in: [1, 2], iterator: x}\n    tool: {kind: python, code: 'result = [chr(0xD800)]'}",
    ]
    for body in bodies:
        state = await playbooks.run(playbook(f"workflow:\n  - step: a\n    {body}\n"))
        assert state.status == "FAILED", (body, state.results)
        assert state.error, body
        await ended(playbooks, state)


async def test_what_takes_too_long_is_stopped(playbooks: Playbooks) -> None:
    step = await playbooks.run(
        playbook("workflow:\n  - step: a\n    spec: {timeout: 0.2}\n    tool: {kind: shell, command: sleep 60}\n")
    )
    task = await playbooks.run(
        playbook("workflow:\n  - step: a\n    tool: {kind: python, timeout: 0.5, code: 'while True: pass'}\n")
    )
    slots = await playbooks.run(
        playbook("""
        workflow:
          - step: a
            spec: {timeout: 0.3}
            loop: {in: [1, 2], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
            tool: {kind: shell, command: sleep 60}
        """)
    )

    assert (step.status, step.error) == ("FAILED", "step a took longer than its 0.2 s")
    assert task.status == "FAILED"
    assert "0.5 seconds" in (task.error or "")
    assert slots.status == "FAILED"
    assert "took longer" in (slots.error or "")


async def test_a_keychain_that_is_refused_fails_the_step(playbooks: Playbooks) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"error": "invalid_client"}, status=401)

    app = web.Application()
    app.router.add_post("/token", refuse)
    async with TestServer(app) as server:
        state = await playbooks.run(
            playbook(f"""
            keychain:
              - {{name: granted, kind: oauth2, endpoint: "{server.make_url("/token")}", data: {{client_id: me}}}}
            workflow:
              - step: a
                tool: {{kind: shell, command: "echo {{{{ keychain.granted.access_token }}}}"}}
            """)
        )

    assert state.status == "FAILED"
    assert "granted" in (state.error or "")
    await ended(playbooks, state)


async def test_a_failure_stops_what_runs_beside_it_and_the_final_step_still_runs(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        executor: {spec: {final_step: tidy}}
        workflow:
          - step: start
            tool: {kind: noop}
            next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: bad}]}
          - step: slow
            tool: {kind: shell, command: sleep 60}
          - step: bad
            tool: {kind: python, code: "raise ValueError('no')"}
          - step: tidy
            tool: {kind: noop, set: {ctx.tidied: true}}
        """)
    )

    assert (state.status, state.error, state.ctx) == ("FAILED", "ValueError: no (line 1)", {"tidied": True})
    assert state.failed_step == "bad"
