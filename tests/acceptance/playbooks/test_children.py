"""Playbooks that run playbooks: alone, in a sequence and for every row; their ends, their cancellation, and re-runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.errors import Conflict
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

CHILD = playbook(
    """
    workload: {n: 1, factor: 2, fails: false}
    workflow:
      - step: work
        tool: {kind: python, input: {n: "{{ n }}", factor: "{{ factor }}", fails: "{{ fails }}"}, code: "result = {'n': n * factor if not fails else 1 / 0}"}
        next: {arcs: [{step: last}]}
      - step: last
        tool: {kind: python, input: {n: "{{ work.n }}"}, code: "result = {'last': n + 1}"}
    """,
    "tests/child",
)


class Gate:
    """A server that lets nobody through until it is opened."""

    def __init__(self) -> None:
        self.url = ""
        self.waiting = asyncio.Semaphore(0)
        self.open = asyncio.Event()

    async def wait(self, _request: web.Request) -> web.Response:
        self.waiting.release()
        await self.open.wait()
        return web.json_response("through")


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    """A server where executions can be held."""
    gate = Gate()
    app = web.Application()
    app.router.add_get("/", gate.wait)
    async with TestServer(app) as server:
        gate.url = str(server.make_url("/"))
        yield gate
        gate.open.set()


async def test_a_child_gives_its_result_or_that_of_the_step_asked_for(playbooks: Playbooks) -> None:
    await playbooks.register(CHILD)
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: whole
            tool: {kind: playbook, path: tests/child, input: {n: 5}}
            next: {arcs: [{step: part}]}
          - step: part
            tool: {kind: playbook, path: tests/child, version: 1, payload: {n: 5, factor: 3}, return_step: work}
            next: {arcs: [{step: sequence}]}
          - step: sequence
            tool:
              - {name: one, kind: playbook, path: tests/child, input: {n: "{{ part.n }}"}, return_step: work}
              - {name: two, kind: playbook, path: tests/child, input: {n: "{{ one.n }}"}, set: {ctx.last: "{{ output.data.last }}"}}
            set: {ctx.ids: "{{ [whole.execution_id, part.execution_id, sequence.execution_id] }}"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["whole"].data == {"last": 11}
    assert state.results["part"].data == {"n": 15}
    assert state.results["sequence"].data == {"last": 61, "execution_id": state.ctx["ids"][2]}
    assert state.ctx["last"] == 61
    children = [await playbooks.finished(int(one)) for one in state.ctx["ids"]]
    assert [child.result_step for child in children] == ["last"] * 3
    assert {child.parent_execution_id for child in children} == {state.execution_id}
    assert len(set(state.ctx["ids"])) == 3


async def test_the_id_of_a_child_is_there_whatever_it_came_to(playbooks: Playbooks) -> None:
    await playbooks.register(
        playbook(
            """
            workload: {what: none}
            workflow:
              - step: work
                tool:
                  kind: python
                  input: {what: "{{ what }}"}
                  code: "result = {'none': None, 'number': 7, 'own': {'execution_id': 'mine'}, 'large': 'x' * 100000}[what]"
            """,
            "tests/gives",
        )
    )
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: empty
            tool: {kind: playbook, path: tests/gives, wait: true}
            next: {arcs: [{step: number}]}
          - step: number
            tool: {kind: playbook, path: tests/gives, input: {what: number}, wait: true}
            next: {arcs: [{step: own}]}
          - step: own
            tool: {kind: playbook, path: tests/gives, input: {what: own}, wait: true}
            next: {arcs: [{step: large}]}
          - step: large
            tool: {kind: playbook, path: tests/gives, input: {what: large}, wait: true}
            next: {arcs: [{step: listed}]}
          - step: listed
            tool:
              - {name: nothing, kind: playbook, path: tests/gives, wait: true, set: {ctx.nothing: "{{ output.child.execution_id }}"}}
              - name: seven
                kind: playbook
                path: tests/gives
                input: {what: number}
                wait: true
                set: {ctx.seven: "{{ output.child.execution_id }}"}
            set: {ctx.ids: "{{ [empty.execution_id, number.execution_id, large.execution_id] }}", ctx.own: "{{ own.execution_id }}"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    ids = [*state.ctx["ids"], state.ctx["nothing"], state.ctx["seven"]]
    children = [await playbooks.finished(int(one)) for one in ids]
    assert [child.workload["what"] for child in children] == ["none", "number", "large", "none", "number"]
    assert state.ctx["own"] == "mine", "a field that the child gave stands"
    assert (state.results["number"].data, state.results["listed"].data) == (7, 7)


async def test_a_child_with_a_large_workload_gives_the_step_asked_for(playbooks: Playbooks) -> None:
    """INV-153. What it was asked for lies in the payload store with its workload."""
    await playbooks.register(CHILD)
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: part
            tool: {kind: playbook, path: tests/child, payload: {n: 5, factor: 3, note: "{{ 'long ' * 20000 }}"}, return_step: work}
        """)
    )
    assert state.status == "COMPLETED", state.error
    assert state.results["part"].data == {"n": 15}


async def test_every_row_of_a_loop_is_a_child(playbooks: Playbooks) -> None:
    await playbooks.worker(slots=2)
    await playbooks.register(CHILD)
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: each
            loop: {in: "{{ range(12) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 4, frame: {row_concurrency: 3}}}
            tool: {kind: playbook, path: tests/child, input: {n: "{{ iter.n }}"}, return_step: work}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert [row["n"] for row in state.results["each"].data["results"]] == [2 * n for n in range(12)]
    async with playbooks.runtime.database.transaction(playbooks.scope) as connection:
        children = await connection.fetchval(
            "SELECT count(*) FROM noetl.event WHERE parent_execution_id = $1 AND event_type = 'execution.requested'",
            state.execution_id,
        )
    assert children == 12


async def test_a_child_that_fails_fails_its_step_with_the_reason(playbooks: Playbooks) -> None:
    await playbooks.register(CHILD)
    text = playbook("""
    workload: {path: tests/child}
    workflow:
      - step: child
        tool: {kind: playbook, path: "{{ path }}", input: {fails: true}}
        next: {arcs: [{step: handled, when: "{{ output.status == 'error' and path == 'tests/child' and workload.handles | default(false) }}"}]}
      - step: handled
        tool: {kind: python, code: "result = 'handled'"}
    """)
    failed = await playbooks.run(text)
    handled = await playbooks.run(text, {"handles": True})
    absent = await playbooks.run(text, {"path": "tests/nowhere"})

    assert failed.status == "FAILED"
    assert "ended as FAILED" in (failed.error or "")
    assert "ZeroDivisionError" in (failed.error or "")
    assert (handled.status, handled.results["handled"].data, handled.swallowed) == ("COMPLETED", "handled", 1)
    assert absent.status == "FAILED"
    assert "tests/nowhere" in (absent.error or "")


async def test_a_row_whose_child_fails_fails_alone(playbooks: Playbooks) -> None:
    await playbooks.register(CHILD)
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: each
            loop: {in: [false, true, false], iterator: fails}
            tool: {kind: playbook, path: tests/child, input: {fails: "{{ fails }}"}}
            next: {arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
          - step: end
            tool: {kind: noop}
        """)
    )

    assert state.status == "COMPLETED", state.error
    data = state.results["each"].data
    assert (data["completed"], data["failed"], state.swallowed) == (2, 1, 1)
    assert [row and row["last"] for row in data["results"]] == [3, None, 3]
    assert len({row["execution_id"] for row in data["results"] if row}) == 2


async def test_cancelling_a_parent_cancels_everything_below_it(playbooks: Playbooks, gate: Gate) -> None:
    await playbooks.register(
        playbook(
            "workload: {url: ''}\nworkflow:\n  - step: held\n    tool: {kind: http, url: '{{ url }}', timeout: 60}\n",
            "tests/held",
        )
    )
    await playbooks.register(
        playbook(
            "workload: {url: ''}\nworkflow:\n  - step: down\n"
            "    tool: {kind: playbook, path: tests/held, input: {url: '{{ url }}'}}\n",
            "tests/middle",
        )
    )
    top = playbook("""
    workload: {url: ""}
    workflow:
      - step: start
        tool: {kind: noop}
        next: {spec: {mode: inclusive}, arcs: [{step: alone}, {step: rows}]}
      - step: alone
        tool: {kind: playbook, path: tests/middle, input: {url: "{{ url }}"}}
      - step: rows
        loop: {in: [1, 2], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
        tool: {kind: playbook, path: tests/held, input: {url: "{{ url }}"}}
    """)
    state = await playbooks.start(top, {"url": gate.url})
    for _ in range(3):
        await asyncio.wait_for(gate.waiting.acquire(), 30)
    cancelled = await playbooks.engine.cancel(playbooks.scope, state.execution_id, reason="enough", by="tests")

    assert len(cancelled) == 5
    ends = [await playbooks.finished(execution_id) for execution_id in cancelled]
    assert {end.status for end in ends} == {"CANCELLED"}
    assert ends[0].error == "enough"


async def test_a_rerun_from_a_step_keeps_what_came_before_it(playbooks: Playbooks) -> None:
    text = playbook("""
    workload: {divisor: 0}
    workflow:
      - step: costly
        tool: {kind: shell, command: "echo {{ execution_id }}"}
        set: {ctx.by: "{{ output.data.stdout | trim }}"}
        next: {arcs: [{step: large}]}
      - step: large
        tool: {kind: python, code: "result = {'text': 'x' * 100000}"}
        next: {arcs: [{step: divide}]}
      - step: divide
        tool: {kind: python, input: {d: "{{ workload.divisor }}", size: "{{ large.text | length }}", by: "{{ ctx.by }}"}, code: "result = [size // d, by]"}
    """)
    first = await playbooks.run(text)
    assert first.status == "FAILED"
    again = await playbooks.engine.rerun(
        playbooks.scope, first.execution_id, from_step="divide", payload={"divisor": 10}, requested_by="tests"
    )
    second = await playbooks.finished(again.execution_id)
    whole = await playbooks.engine.rerun(
        playbooks.scope, first.execution_id, from_step=None, payload={"divisor": 5}, requested_by="tests"
    )
    third = await playbooks.finished(whole.execution_id)

    assert second.status == "COMPLETED", second.error
    assert second.results["divide"].data == [10_000, str(first.execution_id)]
    assert second.runs == {"divide": 1}
    assert third.status == "COMPLETED", third.error
    assert third.results["divide"].data == [20_000, str(third.execution_id)]


async def test_only_what_has_ended_is_run_again(playbooks: Playbooks, gate: Gate) -> None:
    text = playbook(
        "workload: {url: ''}\nworkflow:\n  - step: held\n    tool: {kind: http, url: '{{ url }}', timeout: 60}\n"
    )
    state = await playbooks.start(text, {"url": gate.url})
    with pytest.raises(Conflict):
        await playbooks.engine.rerun(
            playbooks.scope, state.execution_id, from_step=None, payload={}, requested_by="tests"
        )
    await playbooks.engine.cancel(playbooks.scope, state.execution_id, reason="over", by="tests")

    assert (await playbooks.finished(state.execution_id)).status == "CANCELLED"


TROUBLESHOOTER = playbook(
    """
    workload: {execution_id: "", noetl_url: none}
    workflow:
      - step: look
        tool: {kind: python, input: {id: "{{ workload.execution_id }}", at: "{{ noetl_url }}"}, code: "result = {'diagnosis': {'about': id, 'at': at}}"}
    """,
    "tests/troubleshooter",
)


async def test_an_agent_that_is_a_playbook_answers_in_an_envelope(playbooks: Playbooks) -> None:
    await playbooks.register(CHILD)
    await playbooks.register(TROUBLESHOOTER)
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: ask
            tool: {kind: agent, framework: noetl, entrypoint: tests/child, payload: {n: 4}, invoke_kwargs: {factor: 3}}
            next: {arcs: [{step: fails}]}
          - step: fails
            tool:
              kind: agent
              framework: noetl
              entrypoint: tests/child
              payload: {fails: true}
              on_failure: {troubleshoot: tests/troubleshooter, noetl_url: here}
            next: {arcs: [{step: undiagnosed}]}
          - step: undiagnosed
            tool: {kind: agent, framework: noetl, entrypoint: tests/absent, on_failure: {troubleshoot: true}}
            next: {arcs: [{step: alone}]}
          - step: alone
            tool: {kind: agent, framework: noetl, entrypoint: tests/child, payload: {fails: true}}
            next: {arcs: [{step: handled, when: "{{ output.error.code == 'child_failed' }}"}]}
          - step: handled
            tool: {kind: python, input: {of: "{{ alone }}"}, code: "result = [of['status'], of['error']['code']]"}
        """)
    )
    assert state.status == "COMPLETED", state.error
    asked = state.results["ask"].data
    child = await playbooks.finished(int(asked["execution_id"]))
    assert (child.parent_execution_id, asked["status"], asked["data"]["last"]) == (state.execution_id, "ok", 13)
    assert (asked["framework"], asked["entrypoint"]) == ("noetl", "tests/child")
    failed = state.results["fails"].data
    assert (failed["status"], failed["data"]) == ("error", None)
    assert (failed["error"]["kind"], failed["error"]["code"]) == ("agent.execution", "PLAYBOOK_FAILED")
    assert failed["error"]["diagnosis"] == {"about": failed["execution_id"], "at": "here"}
    assert (await playbooks.finished(int(failed["execution_id"]))).status == "FAILED"
    absent = state.results["undiagnosed"].data
    assert (absent["error"]["kind"], "diagnosis" in absent["error"]) == ("agent.configuration", False)
    assert state.results["handled"].data == ["error", "PLAYBOOK_FAILED"]
    assert state.swallowed == 3, "a failure that is let pass is counted"
