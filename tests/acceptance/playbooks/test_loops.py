"""Loops over collections: order, frames and their bounds, shared values, failed rows, and what is recorded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import asyncpg
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from noetl.engine.plan.state import State
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call
from noetl.errors import Conflict
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


async def loop(playbooks: Playbooks, spec: str, *, tool: str, rows: object, after: str = "") -> State:
    """Run a playbook that is one loop over the rows of its workload."""
    body = f"workload: {{rows: []}}\nworkflow:\n  - step: each\n    loop: {{in: '{{{{ rows }}}}', iterator: row, spec: {spec}}}\n"
    return await playbooks.run(playbook(body + f"    tool: {tool}\n{after}"), {"rows": rows})


def counts(state: State) -> tuple[int, int, int, int]:
    """Return rows, rows done, rows failed and frames of the loop."""
    data = state.results["each"].data
    return data["total"], data["completed"], data["failed"], data["frames"]


@pytest.mark.parametrize(
    "spec", ["{mode: sequential}", "{mode: parallel, max_in_flight: 4}", "{mode: fanout, max_in_flight: 4}"]
)
async def test_results_come_in_the_order_of_the_rows(playbooks: Playbooks, spec: str) -> None:
    rows = [{"n": n, "nested": {"list": [n, {"deep": "007"}], "none": None}} for n in range(25)]
    tool = (
        "{kind: python, input: {row: '{{ iter.row }}', at: '{{ iter._index }}'}, code: \"result = {'at': at, **row}\"}"
    )
    state = await loop(playbooks, spec, tool=tool, rows=rows)

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [{"at": n, **row} for n, row in enumerate(rows)]
    assert counts(state)[:3] == (25, 25, 0)


async def test_every_frame_is_two_events(playbooks: Playbooks) -> None:
    """INV-36."""
    state = await loop(
        playbooks,
        "{mode: parallel, max_in_flight: 3, frame: {max_rows: 7}}",
        tool="{kind: python, input: {n: '{{ row }}'}, code: 'result = n'}",
        rows=list(range(30)),
    )

    assert state.status == "COMPLETED", state.error
    assert counts(state) == (30, 30, 0, 5)
    events = Counter(event["event_type"] for event in await playbooks.events(state.execution_id))
    assert (events["frame.dispatched"], events["frame.committed"]) == (5, 5)
    assert sum(count for kind, count in events.items() if kind.startswith("frame.")) == 10
    assert (events["loop.started"], events["loop.done"], events["stage.opened"], events["stage.closed"]) == (1, 1, 1, 1)


async def test_a_frame_that_runs_out_of_time_goes_on_as_another(playbooks: Playbooks, api: str) -> None:
    for lanes in (1, 4):
        state = await loop(
            playbooks,
            f"{{mode: parallel, max_in_flight: 2, frame: {{max_rows: 15, max_seconds: 0.1, row_concurrency: {lanes}}}}}",
            tool=f"{{kind: http, url: '{api}/api/v1/concurrency/probe',"
            f" params: {{delay_seconds: 0.06, label: '{lanes}-{{{{ row }}}}'}}}}",
            rows=list(range(30)),
        )
        assert state.status == "COMPLETED", state.error
        labels = [f"{lanes}-{row}" for row in range(30)]
        assert [row["data"]["label"] for row in state.results["each"].data["results"]] == labels
        async with ClientSession() as session, session.get(f"{api}/api/v1/concurrency/stats") as answer:
            stats = await answer.json()
        assert [stats[label]["total"] for label in labels] == [1] * 30
        total, done, failed, frames = counts(state)
        assert (total, done, failed) == (30, 30, 0)
        assert frames > 2, "no frame ran out of time"
        dispatched = await playbooks.events(state.execution_id, "frame.dispatched", "frame.committed")
        assert len(dispatched) == 2 * frames


async def test_a_frame_whose_results_grow_too_large_goes_on_as_another(playbooks: Playbooks) -> None:
    state = await loop(
        playbooks,
        "{frame: {max_rows: 10, max_bytes: 3000}}",
        tool="{kind: python, input: {n: '{{ row }}'}, code: \"result = {'n': n, 'text': 'x' * 1000}\"}",
        rows=list(range(10)),
    )

    assert state.status == "COMPLETED", state.error
    assert counts(state) == (10, 10, 0, 4)
    assert [row["n"] for row in state.results["each"].data["results"]] == list(range(10))


async def test_rows_of_a_frame_run_together_as_far_as_it_allows(playbooks: Playbooks, api: str) -> None:
    text = playbook("""
    workload: {api: ""}
    workflow:
      - step: each
        loop: {in: "{{ range(12) | list }}", iterator: n, spec: {frame: {max_rows: 12, row_concurrency: 4}}}
        tool: {kind: http, url: "{{ api }}/api/v1/concurrency/probe", params: {delay_seconds: 0.05}}
    """)
    state = await playbooks.run(text, {"api": api})

    assert state.status == "COMPLETED", state.error
    assert max(row["data"]["max_active"] for row in state.results["each"].data["results"]) == 4


async def test_a_sequential_loop_hands_shared_values_from_row_to_row_and_on(playbooks: Playbooks) -> None:
    state = await loop(
        playbooks,
        "{mode: sequential, frame: {max_rows: 3}}",
        tool="{kind: python, input: {n: '{{ row }}', so_far: '{{ (ctx.sum | default({})).total | default(0) }}'}, "
        "code: 'result = n + so_far', set: {ctx.sum.total: '{{ output.data }}', iter.own: 1}}",
        rows=list(range(1, 11)),
        after="    set: {ctx.after: '{{ ctx.sum.total * 2 }}'}\n    next: {arcs: [{step: end, when: '{{ ctx.after == 110 }}'}]}\n"
        "  - step: end\n    tool: {kind: python, input: {x: '{{ ctx.sum.total }}'}, code: 'result = x'}\n",
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [1, 3, 6, 10, 15, 21, 28, 36, 45, 55]
    assert state.ctx == {"sum": {"total": 55}, "after": 110}
    assert state.results["end"].data == 55


async def test_what_a_later_row_writes_over_is_gone(playbooks: Playbooks) -> None:
    state = await loop(
        playbooks,
        "{frame: {max_rows: 5}}",
        tool="[{name: a, kind: noop, spec: {policy: {rules: [{when: '{{ row == 1 }}', then: {do: break, set: {ctx.a.old: 1}}}]}}},"
        " {name: b, kind: noop, set: {ctx.a: {new: 2}}}]",
        rows=[1, 2],
    )

    assert (state.status, state.ctx) == ("COMPLETED", {"a": {"new": 2}})


async def test_rows_that_set_more_than_allowed_fail_and_are_told_why(playbooks: Playbooks) -> None:
    state = await loop(
        playbooks,
        "{frame: {max_rows: 10}}",
        tool="{kind: python, code: \"result = 'x' * 170000\", set: {ctx.all: '{{ (ctx.all | default([])) + [output.data] }}'}}",
        rows=list(range(10)),
    )

    assert state.status == "FAILED"
    assert (state.error or "").startswith("4 of 10 rows failed; first: row 6: ")
    assert [len(text) for text in state.ctx["all"]] == [170_000] * 6
    (committed,) = await playbooks.events(state.execution_id, "frame.committed")
    told = committed["result"]["errors"][0]["message"]
    assert "set more than 1048576 bytes in ctx (runtime.scheduler.max_frame_ctx_bytes)" in told
    assert list(committed["context"]["set"]["all"]) == ["noetl.payload"], "what is large is not in the event"
    (kept,) = await playbooks.events(state.execution_id, "artifact.stored")
    assert kept["payload_ref"].sha256 == committed["context"]["set"]["all"]["noetl.payload"]["sha256"]


async def test_rows_that_fail_are_counted_and_named_and_arcs_decide(playbooks: Playbooks) -> None:
    tool = "{kind: python, input: {n: '{{ row }}'}, code: 'result = 10 // n'}"
    failed = await loop(playbooks, "{frame: {max_rows: 2}}", tool=tool, rows=[1, 0, 2, 5])
    arc = "    next: {arcs: [{step: end, when: \"{{ event.name == 'loop.done' and output.data.failed == 1 }}\"}]}\n"
    handled = await loop(
        playbooks,
        "{frame: {max_rows: 2}}",
        tool=tool,
        rows=[1, 0, 2, 5],
        after=arc + "  - step: end\n    tool: {kind: noop}\n",
    )

    assert failed.status == "FAILED"
    problem = "ZeroDivisionError: integer division or modulo by zero (line 1)"
    assert failed.error == f"1 of 4 rows failed; first: row 1: {problem}"
    assert failed.results["each"].data["results"] == [10, None, 5, 2]
    committed = await playbooks.events(failed.execution_id, "frame.committed")
    (bad,) = [event for event in committed if event["meta"].get("failed_count")]
    assert (bad["result"]["errors"][0]["index"], bad["result"]["errors"][0]["exception_type"]) == (
        1,
        "ZeroDivisionError",
    )
    assert (handled.status, handled.swallowed, handled.runs) == ("COMPLETED", 1, {"each": 1, "end": 1})


async def test_an_empty_collection_is_done_at_once(playbooks: Playbooks) -> None:
    for mode in ("sequential", "parallel", "fanout"):
        state = await loop(
            playbooks,
            f"{{mode: {mode}}}",
            tool="{kind: noop}",
            rows=[],
            after="    next: {arcs: [{step: end, when: \"{{ event.name == 'loop.done' and output.data.total == 0 }}\"}]}\n"
            "  - step: end\n    tool: {kind: python, code: 'result = 1'}\n",
        )
        assert state.status == "COMPLETED", state.error
        assert state.results["end"].data == 1
        assert counts(state) == (0, 0, 0, 0)


@pytest.mark.parametrize("size", [1, 40_000], ids=["in the event", "behind a manifest"])
@pytest.mark.parametrize("mode", ["sequential", "parallel, max_in_flight: 2"])
async def test_frames_worked_off_as_one_have_one_result_each(playbooks: Playbooks, mode: str, size: int) -> None:
    state = await loop(
        playbooks,
        f"{{mode: {mode}, frame: {{max_rows: 4, process: frame}}}}",
        tool="{kind: python, input: {rows: '{{ frame.rows }}'},"
        f" code: \"result = {{'rows': rows, 'text': 'x' * {size}}}\"}}",
        rows=list(range(7)),
        after="    next: {arcs: [{step: after}]}\n"
        "  - step: after\n    loop: {in: '{{ each }}', iterator: one}\n"
        "    tool: {kind: python, input: {one: '{{ iter.one }}'}, code: \"result = one['rows']\"}\n",
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["after"].data["results"] == [[0, 1, 2, 3], [4, 5, 6]]
    assert counts(state) == (7, 7, 0, 2)
    inline = state.results["each"].data.get("results")
    assert inline == ([{"rows": [0, 1, 2, 3], "text": "x"}, {"rows": [4, 5, 6], "text": "x"}] if size == 1 else None)
    committed = await playbooks.events(state.execution_id, "frame.committed")
    rows = [event["meta"]["row_count"] for event in committed if event["node_name"] == "each"]
    assert sorted(rows) == [3, 4]


async def test_frames_worked_off_as_one_are_tried_again_as_one(playbooks: Playbooks) -> None:
    tried: list[list[int]] = []

    async def take(request: web.Request) -> web.Response:
        rows = await request.json()
        tried.append(rows)
        is_bad = rows[0] == 4 or (rows[0] == 0 and tried.count(rows) == 1)
        return web.json_response({"taken": len(rows)}, status=500 if is_bad else 200)

    app = web.Application()
    app.router.add_post("/", take)
    async with TestServer(app) as server:
        state = await loop(
            playbooks,
            "{mode: parallel, frame: {max_rows: 4, process: frame, max_attempts: 2, retry_mode: whole_frame}}",
            tool=f"{{kind: http, method: POST, url: '{server.make_url('/')}', body: '{{{{ iter.row_rows }}}}'}}",
            rows=list(range(10)),
        )

    assert state.status == "FAILED"
    assert (state.error or "").startswith("4 of 10 rows failed; first: rows 4 to 7: POST ")
    assert sorted(tried) == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2 + [[8, 9]]
    assert counts(state)[1:3] == (6, 4)
    assert [one is None for one in state.results["each"].data["results"]] == [False, True, False]
    kinds = Counter(event["event_type"] for event in await playbooks.events(state.execution_id))
    assert (kinds["frame.attempt_failed"], kinds["frame.failed"], kinds["frame.committed"]) == (2, 1, 2)


class Interrupted:
    """A shell tool that loses its place once, at the fifth row."""

    kind: ClassVar[str] = "shell"

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, call: Call) -> Outcome:
        self.ran.append(str(call.options["cmds"]))
        if len(self.ran) == 5:
            raise Conflict("somebody else was first")
        return Outcome(data=self.ran[-1])


@pytest.mark.parametrize(("mode", "lanes", "runs"), [("resume", 1, 8), ("whole_frame", 1, 12), ("resume", 2, None)])
async def test_a_frame_that_resumes_does_not_repeat_what_is_done(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch, mode: str, lanes: int, runs: int | None
) -> None:
    tool = Interrupted()
    monkeypatch.setattr("noetl.runtime.assembly.engine.load_tools", lambda _: {"shell": tool})
    state = await loop(
        playbooks,
        f"{{frame: {{retry_mode: {mode}, heartbeat_seconds: 0.000001, row_concurrency: {lanes}}}}}",
        tool="{kind: shell, command: '{{ row }}', set: {ctx.seen: '{{ (ctx.seen | default([])) + [row] }}'}}",
        rows=list("abcdefg"),
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == list("abcdefg")
    assert set(tool.ran) == set("abcdefg")
    if lanes == 1:
        assert state.ctx["seen"] == list("abcdefg")
        assert len(tool.ran) == runs
    events = Counter(event["event_type"] for event in await playbooks.events(state.execution_id))
    assert (events["frame.checkpointed"] > 0) == (mode == "resume")


async def test_statements_left_to_the_end_of_a_frame_fail_alone(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await user_database.execute("CREATE TABLE kept (n int PRIMARY KEY CHECK (n <> 13), place int)")
    state = await loop(
        playbooks,
        "{mode: parallel, max_in_flight: 2, frame: {max_rows: 10, commit: frame}}",
        tool="[{name: twice, kind: python, input: {n: '{{ row }}'}, code: 'result = n'},"
        " {name: save, kind: postgres, auth: pg_local, command: 'INSERT INTO kept VALUES ($1, $2)', params: ['{{ twice }}', '{{ iter._index }}']}]",
        rows=list(range(30)),
    )

    problem = 'new row for relation "kept" violates check constraint "kept_n_check"'
    assert (state.status, state.error) == ("FAILED", f"1 of 30 rows failed; first: row 13: {problem}")
    kept = await user_database.fetch("SELECT n, place FROM kept ORDER BY n")
    assert [tuple(row) for row in kept] == [(n, n) for n in range(30) if n != 13]
    committed = await playbooks.events(state.execution_id, "frame.committed")
    (bad,) = [event for event in committed if event["meta"].get("failed_count")]
    assert (bad["result"]["errors"][0]["index"], bad["result"]["errors"][0]["kind"]) == (13, "db_constraint")


async def test_many_results_stand_behind_a_manifest_that_a_later_step_reads(playbooks: Playbooks) -> None:
    state = await loop(
        playbooks,
        "{mode: parallel, max_in_flight: 4, frame: {max_rows: 10}}",
        tool="{kind: python, input: {n: '{{ row }}'}, code: \"result = {'n': n, 'text': 'x' * 2000}\"}",
        rows=list(range(50)),
        after="    next: {arcs: [{step: manifest}]}\n"
        "  - step: manifest\n    tool: {kind: artifact, action: get, input: {result_ref: '{{ each._ref }}'}}\n"
        "    next: {arcs: [{step: rows}]}\n"
        "  - step: rows\n    loop: {in: '{{ manifest.frames }}', iterator: part}\n"
        "    tool: {kind: artifact, action: get, input: {result_ref: '{{ part.ref }}'}}\n",
    )

    assert state.status == "COMPLETED", state.error
    assert "results" not in state.results["each"].data
    manifest = await playbooks.data(state, "manifest")
    assert [(part["first_index"], part["rows"]) for part in manifest["frames"]] == [(n, 10) for n in range(0, 50, 10)]
    assert state.results["rows"].data["completed"] == 5


async def test_ten_thousand_rows_that_do_nothing_are_quick(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: each
            loop: {in: "{{ range(10000) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 8}}
            tool: {kind: noop, set: {iter.twice: "{{ n * 2 }}"}}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert counts(state) == (10_000, 10_000, 0, 100)
    dispatched = await playbooks.events(state.execution_id, "frame.dispatched", "frame.committed")
    assert len(dispatched) == 200


async def test_a_fan_out_is_as_strict_as_it_says(playbooks: Playbooks) -> None:
    tool = "{kind: python, input: {n: '{{ row }}'}, code: 'result = 1 // n'}"
    after = "    set: {ctx.ended: '{{ fanin.status }}', ctx.done: '{{ fanin.done }}'}\n"
    lenient = await loop(playbooks, "{mode: fanout, max_in_flight: 3}", tool=tool, rows=[1, 0, 1], after=after)
    strict = await loop(
        playbooks,
        "{mode: fanout, max_in_flight: 3, fanout: {allow_partial: false}}",
        tool=tool,
        rows=[1, 0, 1],
        after=after,
    )

    assert (lenient.status, lenient.ctx, lenient.swallowed) == ("COMPLETED", {"ended": "partial", "done": 2}, 1)
    assert (strict.status, strict.ctx["ended"]) == ("FAILED", "failed")
    shards = Counter(event["event_type"] for event in await playbooks.events(lenient.execution_id))
    assert (shards["loop.shard.done"], shards["loop.shard.failed"]) == (2, 1)
    assert (shards["loop.shard.enqueued"], shards["loop.shard.attempt_failed"]) == (5, 2)


async def test_a_shard_that_fails_is_tried_again_by_itself(playbooks: Playbooks, tmp_path: Path) -> None:
    code = "import os; was = os.path.exists(path); open(path, 'w').close(); result = n if was else 1 // 0"
    tool = f"{{kind: python, input: {{n: '{{{{ row }}}}', path: '{tmp_path}/{{{{ row }}}}'}}, code: \"{code}\"}}"
    fanout = "{mode: fanout, max_in_flight: 2, fanout: {max_shard_retries: 1}}"
    state = await loop(playbooks, fanout, tool=tool, rows=[1, 2, 3])

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [1, 2, 3]
    shards = Counter(event["event_type"] for event in await playbooks.events(state.execution_id))
    assert (shards["loop.shard.attempt_failed"], shards["loop.shard.done"], shards["loop.shard.failed"]) == (3, 3, 0)
