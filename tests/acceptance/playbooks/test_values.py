"""Values on their way through a playbook: what `set` writes, what templates refuse, and types that stay what they are."""

from __future__ import annotations

import asyncpg
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


async def test_set_writes_to_every_scope_and_arcs_have_the_last_word(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: first
            tool:
              - {name: one, kind: python, code: "result = {'n': 5}", set: {ctx.task: "{{ output.data.n }}", iter.own: "{{ output.data.n }}"}}
              - {name: between, kind: noop, set: {step.mine: "{{ iter.own + ctx.task - 4 }}"}}
              - {name: two, kind: python, input: {seen: "{{ step.mine }}"}, code: "result = {'seen': seen}"}
            set: {total: "{{ output.data.seen }}", ctx.deep.down.here: "{{ first.seen * 2 }}", ctx.said: step}
            next:
              arcs:
                - {step: never, when: "{{ ctx.total == 0 }}", set: {ctx.said: wrong}}
                - {step: second, when: "{{ ctx.total == 6 }}", set: {ctx.said: "{{ ctx.said }} and arc", ctx.deep.down.more: "{{ output.data.seen }}"}}
          - step: never
            tool: {kind: noop}
          - step: second
            input: {given: "{{ ctx.said }}"}
            tool: {kind: python, input: {also: "{{ input.given | upper }}"}, code: "result = [given, also]"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"task": 5, "total": 6, "said": "step and arc", "deep": {"down": {"here": 12, "more": 6}}}
    assert state.results["second"].data == ["step and arc", "STEP AND ARC"]


async def test_what_is_undefined_fails_its_step_and_is_named(playbooks: Playbooks) -> None:
    """INV-41."""
    bodies = {
        "tool: {kind: shell, cmds: 'echo {{ ctx.absent }}'}": ("step bad", "field cmds", "ctx.absent"),
        "tool: {kind: python, input: {x: '{{ start.no_such_field }}'}, code: 'result = x'}": ("field input", "no_such"),
        "tool: {kind: noop, set: {ctx.a: '{{ ctx.nowhere }}'}}": ("field set.ctx.a", "ctx.nowhere"),
        "tool: {kind: noop}\n    set: {ctx.a: '{{ workload.absent }}'}": ("field set.ctx.a", "workload.absent"),
        "tool: {kind: noop}\n    next: {arcs: [{step: end, when: '{{ ctx.absent > 1 }}'}]}": (
            "field when",
            "ctx.absent",
        ),
        "loop: {in: '{{ ctx.rows }}', iterator: r}\n    tool: {kind: noop}": ("field loop.in", "ctx.rows"),
        "spec: {timeout: '{{ ctx.limit }}'}\n    tool: {kind: noop}": ("field spec.timeout", "ctx.limit"),
        "tool: {kind: playbook, path: tests/x, input: {a: '{{ ctx.absent }}'}}": ("step bad", "ctx.absent"),
        "spec: {policy: {admit: {rules: [{when: '{{ ctx.absent }}', then: {allow: true}}]}}}\n    tool: {kind: noop}": (
            "field spec.policy.admit",
            "ctx.absent",
        ),
    }
    for body, words in bodies.items():
        text = "workflow:\n  - step: start\n    tool: {kind: python, code: 'result = {}'}\n"
        text += (
            f"    next: {{arcs: [{{step: bad}}]}}\n  - step: bad\n    {body}\n  - step: end\n    tool: {{kind: noop}}\n"
        )
        state = await playbooks.run(playbook(text))
        assert state.status == "FAILED", body
        assert all(word in (state.error or "") for word in words), (body, state.error)


@pytest.mark.parametrize(
    ("body", "where", "line"),
    [
        (
            "workflow:\n  - step: bad\n    spec:\n      timeout: '{{ ctx.absent }}'\n    tool: {kind: noop}\n",
            "step bad, field spec.timeout",
            "timeout:",
        ),
        (
            "keychain:\n  - name: shop\n    kind: static\n    data:\n      token: '{{ ctx.absent }}'\n"
            "workflow:\n  - step: bad\n    tool: {kind: shell, command: 'echo {{ keychain.shop.token }}'}\n",
            "keychain entry shop, field data.token",
            "token: '",
        ),
        (
            "workflow:\n  - step: bad\n    loop:\n      cursor:\n        kind: postgres\n        auth: pg_local\n"
            "        claim: |\n          SELECT 1 AS n\n          WHERE '{{ ctx.absent }}' = ''\n      iterator: row\n"
            "      spec: {mode: cursor}\n    tool: {kind: noop}\n",
            "step bad, field loop.cursor.claim",
            "WHERE",
        ),
    ],
    ids=["time limit", "keychain", "claim"],
)
async def test_what_is_undefined_is_told_with_its_line(
    playbooks: Playbooks, user_database: asyncpg.Connection, body: str, where: str, line: str
) -> None:
    """INV-41."""
    text = playbook(body)
    state = await playbooks.run(text)
    number = next(number for number, one in enumerate(text.splitlines(), 1) if line in one)
    assert state.status == "FAILED"
    assert f"{where}: 'ctx.absent' is undefined" in (state.error or "")
    assert f"(line {number} of the playbook)" in (state.error or ""), state.error


async def test_no_template_reaches_a_tool_as_text(playbooks: Playbooks, user_database: asyncpg.Connection) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    await user_database.execute("CREATE TABLE said (text text)")
    async with TestServer(app) as server:
        for field in ("url: '{{ api }}/{{ ctx.x }}'", "url: '{{ api }}/'\n      body: {a: ['{{ ctx.x }}']}"):
            state = await playbooks.run(
                playbook(
                    f"workload: {{api: ''}}\nworkflow:\n  - step: a\n    tool:\n      kind: http\n      {field}\n"
                ),
                {"api": str(server.make_url("")).rstrip("/")},
            )
            assert state.status == "FAILED"
    command = "INSERT INTO said VALUES ('{{ ctx.x }}'); SELECT '{{ ctx.x | int }}'"
    state = await playbooks.run(
        playbook(f'workflow:\n  - step: a\n    tool: {{kind: postgres, auth: pg_local, command: "{command}"}}\n')
    )

    assert state.status == "FAILED"
    assert asked == []
    assert await user_database.fetchval("SELECT count(*) FROM said") == 0


async def test_leading_zeros_survive_from_http_through_set_to_postgres(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(
            {"id": "007", "yes": "true", "none": "null", "list": "[1]", "number": 7, "large": 2**60, "exact": 0.1}
        )

    app = web.Application()
    app.router.add_get("/", answer)
    await user_database.execute("CREATE TABLE kept (id text, yes text, none text, list text, number int, large int8)")
    async with TestServer(app) as server:
        state = await playbooks.run(
            playbook("""
            workload: {url: ""}
            workflow:
              - step: get
                tool: {kind: http, url: "{{ url }}"}
                set: {ctx.row: "{{ output.data.data }}", ctx.id: "{{ output.data.data.id }}", ctx.made: "{{ output.data.data.id }}-{{ output.data.data.number }}"}
                next: {arcs: [{step: keep}]}
              - step: keep
                tool:
                  kind: postgres
                  auth: pg_local
                  command: "INSERT INTO kept VALUES ($1, $2, $3, $4, $5, $6) RETURNING *"
                  params: ["{{ ctx.id }}", "{{ ctx.row.yes }}", "{{ ctx.row.none }}", "{{ ctx.row.list }}", "{{ ctx.row.number }}", "{{ ctx.row.large | int }}"]
                next: {arcs: [{step: text}]}
              - step: text
                tool: {kind: postgres, auth: pg_local, command: "SELECT id FROM kept WHERE id = '{{ ctx.id }}'"}
            """),
            {"url": str(server.make_url("/"))},
        )

    assert state.status == "COMPLETED", state.error
    assert (state.ctx["id"], state.ctx["made"], state.ctx["row"]["exact"]) == ("007", "007-7", 0.1)
    kept = await user_database.fetchrow("SELECT * FROM kept")
    assert tuple(kept) == ("007", "true", "null", "[1]", 7, 2**60)
    assert state.results["text"].data["rows"] == [{"id": "007"}]


async def test_a_request_is_merged_deep_over_the_workload(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {a: {x: 1, y: 2}, list: [1, 2], kept: "0042"}
        workflow:
          - step: see
            tool: {kind: python, input: {a: "{{ a }}", rest: ["{{ list }}", "{{ workload.kept }}"]}, code: "result = [a, *rest]"}
        """),
        {"a": {"y": 3, "z": None}, "list": [9]},
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["see"].data == [{"x": 1, "y": 3, "z": None}, [9], "0042"]
