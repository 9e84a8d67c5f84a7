"""What policies make of outcomes: retries and their waits, jumps, breaks, failures, and errors that are let pass."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from time import monotonic

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


class Moody:
    """A server that fails so many times for each path before it answers, and remembers when it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: dict[str, list[float]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        asked = self.asked.setdefault(request.path, [])
        asked.append(monotonic())
        if len(asked) <= int(request.query.get("fails", 0)):
            after = request.query.get("after")
            return web.json_response({}, status=429 if after else 503, headers={"Retry-After": after} if after else {})
        return web.json_response({"tries": len(asked)})

    def waits(self, path: str) -> list[float]:
        """Return the seconds between the requests for a path."""
        return [later - sooner for sooner, later in pairwise(self.asked[path])]


@pytest.fixture
async def moody() -> AsyncIterator[Moody]:
    """A server that fails at first."""
    moody = Moody()
    app = web.Application()
    app.router.add_get("/{path:.*}", moody.answer)
    async with TestServer(app) as server:
        moody.url = str(server.make_url("")).rstrip("/")
        yield moody


async def test_retries_wait_as_their_back_off_says(playbooks: Playbooks, moody: Moody) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {url: "", kinds: [none, fixed, linear, exponential]}
        workflow:
          - step: each
            tool:
              - name: none
                kind: http
                url: "{{ url }}/none?fails=3"
                spec: {policy: {rules: [{when: "{{ output.status == 'error' and output.error.retryable }}", then: {do: retry, attempts: 4, backoff: none, delay: 9}}]}}
              - name: fixed
                kind: http
                url: "{{ url }}/fixed?fails=3"
                spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 4, backoff: fixed, delay: 0.1}}]}}
              - name: linear
                kind: http
                url: "{{ url }}/linear?fails=3"
                spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 4, backoff: linear, delay: 0.1}}]}}
              - name: exponential
                kind: http
                url: "{{ url }}/exponential?fails=3"
                spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: "{{ kinds | length }}", backoff: exponential, delay: 0.1}}]}}
              - name: told
                kind: http
                url: "{{ url }}/told?fails=1&after=1"
                spec: {policy: {rules: [{when: "{{ output.status == 'error' and output.error.kind == 'rate_limit' }}", then: {do: retry, backoff: none}}]}}
        """),
        {"url": moody.url},
    )

    assert state.status == "COMPLETED", state.error
    assert sum(moody.waits("/none")) < 0.5
    for path, waits in {"/fixed": [0.1, 0.1, 0.1], "/linear": [0.1, 0.2, 0.3], "/exponential": [0.1, 0.2, 0.4]}.items():
        found = moody.waits(path)
        assert all(least <= wait < least + 0.4 for least, wait in zip(waits, found, strict=True)), (path, found)
    assert 1.0 <= moody.waits("/told")[0] < 2.0
    (ended,) = await playbooks.events(state.execution_id, "command.completed")
    tried = {one["task"]: (one["tries"], one["errors"]) for one in ended["meta"]["tries"]}
    assert tried["linear"] == (4, ["server_error"])
    assert tried["told"] == (2, ["rate_limit"])
    assert state.swallowed == 0


async def test_retries_that_are_used_up_fail_the_step(playbooks: Playbooks, moody: Moody) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {url: ""}
        workflow:
          - step: get
            tool:
              kind: http
              url: "{{ url }}/down?fails=99"
              spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, backoff: none}}]}}
        """),
        {"url": moody.url},
    )

    assert state.status == "FAILED"
    assert "503" in (state.error or "")
    assert len(moody.asked["/down"]) == 3


async def test_a_jump_pages_to_the_end_and_gathers_every_page(playbooks: Playbooks, api: str) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {api: ""}
        workflow:
          - step: pull
            tool:
              - {name: init, kind: noop, set: {iter.cursor: "", iter.ids: []}}
              - name: fetch
                kind: http
                url: "{{ api }}/api/v1/events"
                params: {limit: 4, cursor: "{{ iter.cursor }}"}
                set:
                  iter.cursor: "{{ output.data.data.next_cursor or '' }}"
                  iter.ids: "{{ iter.ids + (output.data.data.events | map(attribute='id') | list) }}"
                spec: {policy: {rules: [{when: "{{ iter.cursor != '' }}", then: {do: jump, to: fetch}}]}}
              - {name: total, kind: noop, set: {ctx.ids: "{{ iter.ids }}", ctx.last: "{{ _prev.data.events[-1].name }}"}}
        """),
        {"api": api},
    )

    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"ids": list(range(1, 36)), "last": "event-35"}


async def test_break_ends_the_sequence_well_and_fail_ends_it_badly(playbooks: Playbooks) -> None:
    text = playbook("""
    workload: {do: break}
    workflow:
      - step: work
        tool:
          - name: look
            kind: python
            code: "result = {'empty': True}"
            spec:
              policy:
                rules:
                  - {when: "{{ workload.do == 'break' and output.data.empty }}", then: {do: break, set: {ctx.why: empty}}}
                  - {when: "{{ workload.do == 'fail' }}", then: {do: fail}}
          - {name: never, kind: noop, set: {ctx.reached: true}}
    """)
    broken_off, failed, through = [await playbooks.run(text, {"do": do}) for do in ("break", "fail", "continue")]

    assert (broken_off.status, broken_off.ctx) == ("COMPLETED", {"why": "empty"})
    assert broken_off.results["work"].data == {"empty": True}
    assert (failed.status, failed.ctx) == ("FAILED", {})
    assert "rule 2 of its policy says fail" in (failed.error or "")
    assert (through.status, through.ctx) == ("COMPLETED", {"reached": True})


async def test_errors_that_are_let_pass_are_counted_for_everybody_to_see(playbooks: Playbooks, api: str) -> None:
    """INV-39."""
    found = await playbooks.run_alone(
        playbook("""
        workload: {api: ""}
        workflow:
          - step: hidden
            tool:
              - name: get
                kind: http
                url: "{{ api }}/api/v1/errors?error_type=404"
                spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.seen: "{{ output.error.kind }}"}}}}]}}
              - {name: after, kind: python, code: "result = 1"}
            next: {arcs: [{step: rows}]}
          - step: rows
            loop: {in: [1, 2, 3, 4], iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 2}}}
            tool:
              - name: odd
                kind: python
                input: {n: "{{ iter.n }}"}
                code: "result = 1 / (n % 2)"
                spec: {policy: {on_unmatched: continue, rules: [{when: false, then: {do: fail}}]}}
            next: {arcs: [{step: caught}]}
          - step: caught
            tool: {kind: python, code: "raise ValueError('no')"}
            next: {arcs: [{step: end, when: "{{ event.name == 'call.error' }}"}]}
          - step: end
            tool: {kind: noop}
        """),
        {"api": api},
    )

    assert found.status == "COMPLETED", found.error
    assert found.swallowed == 1 + 2 + 1
    state = await playbooks.engine.executions.state(playbooks.scope, found.execution_id)
    assert state.swallowed == 4
    assert state.ctx == {"seen": "not_found"}
    (ended,) = await playbooks.events(found.execution_id, "playbook.completed")
    assert ended["meta"]["swallowed"] == 4


async def test_rules_sets_and_arcs_may_ask_for_the_error_of_what_went_well(playbooks: Playbooks, moody: Moody) -> None:
    """Every form in every place, once after a success and once after an error; events say null, as ever."""
    text = playbook("""
    workload: {url: "", fails: 0, passes: true}
    workflow:
      - step: ask
        tool:
          name: get
          kind: http
          url: "{{ url }}/{{ execution_id }}?fails={{ fails }}"
          spec:
            policy:
              rules:
                - {when: "{{ output.error.kind == 'rate_limit' }}", then: {do: fail}}
                - {when: "{{ output.error.retryable and output.error.http_status == 429 }}", then: {do: fail}}
                - when: "{{ output.error is none and output.error == none and not output.error }}"
                  then:
                    do: continue
                    set: {ctx.rule: "{{ [output.error.kind, output.error.message, output.error.code, output.error | tojson] }}"}
                - {when: "{{ output.error.kind == 'server_error' and passes }}", then: {do: continue, set: {ctx.rule: "{{ output.error.http_status }}"}}}
        set: {ctx.step: "{{ output.error.kind }}", ctx.whole: "{{ output.error }}", ctx.text: "{{ output.error | tojson }}"}
        next:
          arcs:
            - {step: busy, when: "{{ output.error.kind == 'rate_limit' }}"}
            - {step: broken, when: "{{ output.error.retryable }}", set: {ctx.arc: "{{ output.error.message }}"}}
            - {step: fine, when: "{{ output.error is none and output.error.pg_code == none }}", set: {ctx.arc: "{{ output.error.exception_type }}"}}
      - step: busy
        tool: {kind: noop}
      - step: broken
        tool: {kind: noop}
      - step: fine
        tool: {kind: noop}
    """)
    state = await playbooks.run(text, {"url": moody.url})
    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"rule": [None, None, None, "null"], "step": None, "whole": None, "text": "null", "arc": None}
    assert "fine" in state.runs
    (ended,) = await playbooks.events(state.execution_id, "command.completed")
    assert ended["result"].get("error") is None
    assert ended["context"]["set"]["rule"] == [None, None, None, "null"]

    passed = await playbooks.run(text, {"url": moody.url, "fails": 1})
    assert passed.status == "COMPLETED", passed.error
    assert (passed.ctx["rule"], passed.ctx["step"], passed.ctx["text"]) == (503, None, "null")
    failed = await playbooks.run(text, {"url": moody.url, "fails": 1, "passes": False})
    assert failed.status == "COMPLETED", failed.error
    assert "broken" in failed.runs
    assert "503" in failed.ctx["arc"]


@pytest.mark.parametrize(
    "body",
    [
        "tool: {kind: noop, spec: {policy: {rules: [{when: '{{ output.error.knid }}', then: {do: break}}]}}}",
        "tool: {kind: noop}\n    set: {ctx.x: '{{ output.error.knid }}'}",
        "tool: {kind: noop}\n    next: {arcs: [{step: bad, when: '{{ output.error.knid }}'}]}",
    ],
    ids=["rule", "set", "arc"],
)
async def test_a_field_that_no_error_has_fails_the_step(playbooks: Playbooks, body: str) -> None:
    """INV-41."""
    state = await playbooks.run(playbook(f"workflow:\n  - step: bad\n    {body}\n"))
    assert state.status == "FAILED"
    assert "'output.error.knid' is undefined" in (state.error or "")


async def test_arcs_of_a_loop_may_ask_for_every_field_of_its_error(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: each
            loop: {in: [1, 0], iterator: n}
            tool: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = 1 / n"}
            next:
              arcs:
                - {step: busy, when: "{{ output.error.http_status == 429 }}"}
                - {step: handled, when: "{{ output.error.kind == 'unknown' and output.error.code is none }}"}
          - step: busy
            tool: {kind: noop}
          - step: handled
            tool: {kind: noop}
        """)
    )
    assert state.status == "COMPLETED", state.error
    assert "handled" in state.runs
