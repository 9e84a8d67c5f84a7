"""Playbooks as users of NoETL have them run unmodified: every file of the corpus, with what it warns of and comes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.plan.state import State
from noetl.language.playbook.checks.all_checks import problems_of
from noetl.model.ids import snowflake_time
from noetl.testing.engines.playbooks import Playbooks

CORPUS = Path(__file__).parents[2] / "playbooks" / "existing"
TWICE = "result = {'twice': n * 2, 'asked': args['n'], 'said': context['start']['stdout']}"

Run = Callable[..., Awaitable[State]]


@pytest.fixture
def run(playbooks: Playbooks) -> Run:
    """Run a playbook of the corpus to its end; what it is warned of stands in its first line."""

    async def run(name: str, **workload: Any) -> State:
        text = (CORPUS / f"{name}.yaml").read_text()
        told = [f"{one.line}:{one.column} {one.code}" for one in problems_of(text)]
        assert f"# expect: {', '.join(told)}".rstrip() == text.split("\n", 1)[0]
        state = await playbooks.run(text, workload)
        assert state.status == "COMPLETED", state.error
        return state

    return run


@pytest.mark.parametrize(("degrees", "total", "said"), [(31, 42, "warm"), (3, 0, "cool")])
async def test_a_workbook_with_what_it_expects_and_returns(run: Run, degrees: int, total: int, said: str) -> None:
    state = await run("workbook_with_asserts", degrees=degrees)
    assert state.results["end"].data == {"status": "complete", "sum": total, "said": said}


async def test_every_row_asks_another_playbook_and_is_kept(
    run: Run, playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await playbooks.register((CORPUS / "scored_child.yaml").read_text())
    state = await run("scored_people")
    assert state.results["end"].data == {"best": "Cy", "scores": [50.0, 20.0, 5.0], "scored": 3}
    kept = await user_database.fetch("SELECT id, name FROM score ORDER BY id")
    at = str(state.execution_id)
    assert [tuple(row) for row in kept] == [(f"{at}:0", "Ada"), (f"{at}:1", "Bo"), (f"{at}:2", "Cy")]


async def test_a_batch_of_playbooks_waits_and_knows_them_by_their_ids(
    run: Run, playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    await playbooks.register((CORPUS / "scored_child.yaml").read_text())
    state = await run("batch_of_playbooks")
    first = await playbooks.finished(int(state.ctx["first_id"]))
    assert (first.path, first.parent_execution_id, state.ctx["first"]) == (
        "existing/scored_child", state.execution_id, 7.5,
    )  # fmt: skip
    rows = state.results["second"].data["results"]
    assert [(row["score"], row["asked_by"]) for row in rows] == [(10.0, "nobody"), (15.0, "nobody")]
    assert len({row["execution_id"] for row in rows} - {state.ctx["first_id"]}) == 2
    assert state.results["store"].data["rows"] == [{"first_id": state.ctx["first_id"], "n": 2}]


async def test_tasks_are_tried_again_as_their_retry_says(run: Run, playbooks: Playbooks, api: str) -> None:
    state = await run("retries", api=api)
    assert state.results["any_error"].data == {"attempt": 3}
    assert state.results["slow_once"].data["stdout"] == "try 2\n"
    assert state.results["counted"].data == 1.0
    assert state.ctx == {"tries": 1}, "an error of another kind is not tried again"
    assert state.swallowed == 1


async def test_code_finds_the_names_it_always_found(run: Run) -> None:
    state = await run("script_names")
    assert state.results["prepare"].data == {
        "text": '[{"id": 10}, {"id": 20}]', "same": True, "absent": "noneFalse", "whole": 36,
    }  # fmt: skip
    assert state.results["returned"].data == {"ids": [10, 20], "suite": "names"}
    assert state.results["called"].data == {"ids": [10, 20, 5], "same": True}
    assert state.results["end"].data == {
        "status": "complete", "ids": [10, 20, 5], "steps": ["called", "prepare", "returned", "start"],
    }  # fmt: skip


async def test_steps_share_a_database_of_their_execution(
    run: Run, playbooks: Playbooks, user_database: asyncpg.Connection, api: str
) -> None:
    assert user_database
    for _ in range(2):  # the second execution would find the tables of the first
        state = await run("duckdb_across_steps", api=api)
        assert state.results["read"].data["rows"] == [{"total": 345, "people": 7, "kinds": "row 0,row 1"}]
        assert state.results["own"].data["rows"] == [{"n": 0}]


async def test_the_totals_of_a_loop_are_read_as_before(run: Run) -> None:
    state = await run("totals_of_a_loop")
    names = [f"row-{at}-of-loop_index" for at in (0, 1, 3)]
    assert state.results["report"].data == {"counts": [4, 3, 1], "names": names, "again": 4}
    assert state.ctx == {"at_the_end": 3}
    assert "stats" not in state.results["each"].data, "derived, never recorded"


async def test_pages_are_pulled_by_tasks_under_their_labels(
    run: Run, user_database: asyncpg.Connection, api: str
) -> None:
    assert user_database
    state = await run("pages_by_label", api=api)
    assert state.results["count"].data["rows"] == [{"pages": 4, "items": 35}]


async def test_scripts_are_had_from_files_and_servers(run: Run, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    app = web.Application()

    async def served(_request: web.Request) -> web.Response:
        return web.Response(text=TWICE)

    app.router.add_get("/twice.py", served)
    async with TestServer(app) as server:
        state = await run(
            "scripts_and_shell", code=str(tmp_path / "twice.py"), served=str(server.make_url("/twice.py"))
        )
    assert state.results["as_kind"].data == {"twice": 32, "asked": 16, "said": "hello world"}


@pytest.mark.service
async def test_values_are_kept_in_nats(run: Run, playbooks: Playbooks, nats_url: str) -> None:
    await playbooks.credential("bus", "nats", url=nats_url, user="u", password="p")
    client = await nats.connect(nats_url, user="u", password="p")
    await client.jetstream().create_key_value(bucket="existing")
    await client.close()
    state = await run("kept_in_nats")
    at = state.execution_id
    assert sorted(state.results["keys"].data["keys"]) == [f"{at}.0", f"{at}.1"]
    assert state.results["give"].data["value"] == {"label": "b", "loop_index": 1}


async def test_a_large_result_is_read_by_its_reference(run: Run) -> None:
    state = await run("large_by_reference")
    assert state.results["sum"].data == {"characters": 120_000, "total": 3}
    assert state.ctx["ref"] is not None


async def test_rows_go_from_http_into_tables(run: Run, user_database: asyncpg.Connection, api: str) -> None:
    assert user_database
    state = await run("http_into_tables", api=api)
    assert state.results["count"].data["rows"] == [{"people": 12, "first": "user-1,user-2,user-3"}]


async def test_statements_and_answers_are_read_one_by_one(
    run: Run, playbooks: Playbooks, user_database: asyncpg.Connection, api: str
) -> None:
    """INV-167."""
    assert user_database
    state = await run("statements_one_by_one", rows=240)
    assert state.results["report"].data == {
        "counts": [0, 240, 240], "kinds": ["k0", "k1", "k2"], "in_code": [240, 3],
        "loaded": [240, True, ["columns", "row_count", "rows", "statement_count", "status"]], "by_name": 240,
        "twice": 240 * 241,
    }  # fmt: skip
    assert "command_0" not in state.results["load"].data, "the rows of one statement are recorded once"
    assert "command_4" not in state.results["seed"].data

    state = await run("answers_with_a_body", api=api)
    first = state.ctx["answer"]["data"]["data"][0]["id"]
    checked = {"same": True, "recorded": False, "first": first, "tasks": 2, "by_name": 200}
    assert state.results["check"].data == checked
    shared = {name: state.ctx.get(name) for name in ("code", "seen", "never", "why", "status")}
    assert shared == {"code": 404, "seen": "error 404", "never": None, "why": "ok", "status": 404}


async def test_names_are_found_where_playbooks_look_for_them(run: Run) -> None:
    """INV-168, INV-169."""
    state = await run("names_a_task_sets")
    seen = [[n] * 4 for n in (10, 20, 30)]
    rows = [[10, 10], [20, 20], [30, 30]]
    assert state.results["end"].data == {"page": 4, "of_workload": 1, "seen": seen, "rows": rows, "last": 30}
    assert state.ctx["told"] == "ok fetched True"

    state = await run("what_may_be_missing")
    text = state.results["start"].data.pop("text")
    assert text.split() == ["absent", "z"]
    assert state.results["start"].data == {
        "host": "db", "deep": 1, "item": "none", "defined": False, "not_run": "not run",
    }  # fmt: skip
    assert state.results["join"].data == {
        "taken": "from left", "again": "from left", "both": "one", "text": "left",
    }  # fmt: skip
    state = await run("what_may_be_missing", left=False)
    assert state.results["join"].data["taken"] == "from right"

    state = await run("frames_as_lists")
    assert state.results["end"].data == {
        "text": [50_000, "3"], "last": 12, "together": [{"sum": 3, "same": True}, {"sum": 12, "same": True}],
        "before": [0, 50_000, 50_000, 50_000],
    }  # fmt: skip

    state = await run("results_as_values")
    counts = {"total": 2, "completed": 2, "failed": 0}
    assert state.results["end"].data == {
        "mapping": {"n": 1, "kind": "own"}, "text": '{"kind":"own","n":1}',
        "parts": [{"n": 1, "kind": "own"}, "ok", "own"], "rows": [1, 2], "count": 5, "refs": [False, True],
        "stores": ["inline", "object"], "each": {**counts, "frames": 1, "results": [2, 4], "stats": counts},
        "again": [3, 5], "tasks": {"one": {"a": 1}, "two": {"more": True}, "three": None},
        "by_name": [2, "ok", "ok"], "given": [1, "ok", ["kind", "n"], [1, 2], "ok"],
    }  # fmt: skip
    assert state.ctx == {"own": 1}


async def test_what_older_playbooks_say_in_other_words_is_done(run: Run) -> None:
    """A misread word would not fail: each of these runs is held to what it comes to."""
    asked = await run("values_of_the_request", user="ada", asked=7)
    assert (asked.path, asked.workload["domain"]) == ("existing/values_of_the_request", "example.org")
    assert asked.workload["at"] == snowflake_time(asked.execution_id).isoformat()
    assert asked.results["/people/show"].data == {"user": "ada", "audience": "https://example.org/me"}
    assert asked.results["people/end"].data == {"asked": 7}
    assert (await run("value_not_declared", town="Ulm")).results["a"].data == ["Ulm", "eu"]
    scripts = await run("script_inline")
    assert (scripts.results["greet"].data, scripts.results["count"].data["stdout"]) == ({"text": "hello moon"}, "3\n")
    ruled = await run("rule_with_an_empty_else")
    assert (ruled.ctx, ruled.swallowed) == ({"seen": "ValueError"}, 1)
    named = await run("root_spec")
    assert (named.results["warm"].data, named.workload["spec"]["job"]) == ({"limit": 20}, str(named.execution_id))
    assert (await run("workbook_nobody_calls")).results["work"].data == {"n": 1}
    older = await run("results_by_older_names")
    assert older.results["good"].data == {"first": 3, "last": 4, "code": 200, "all": 2}
    copied = await run("transfer_mode")
    assert copied.results["look"].data["rows"] == [{"id": 1}, {"id": 2}], "what the target had is replaced"


async def test_what_has_no_effect_has_none(run: Run) -> None:
    assert (await run("libs_no_module")).results["a"].data == 1
    state = await run("without_effect")
    assert state.results["each"].data["results"] == [[1], [2]]
    assert state.results["once"].data == {"one": None, "other": None, "rows": 2}
    assert "script" not in state.results


async def test_credentials_are_named_and_their_tokens_had_in_older_words(run: Run, playbooks: Playbooks) -> None:
    await playbooks.credential("shop_login", "basic", username="ada", password="p")
    await playbooks.credential("robot_account", "bearer", token="t0k3n-of-robots", header="X-Robot")
    seen: list[tuple[str, str, str]] = []
    app = web.Application()

    async def answered(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers["Authorization"], request.headers["X-User"]))
        return web.json_response({})

    app.router.add_get("/{any}", answered)
    async with TestServer(app) as server:
        await run("keychain_older_words", api=str(server.make_url("/")).rstrip("/"))
    bearer = "Bearer t0k3n-of-robots"
    assert seen == [("/orders", bearer, "ada"), ("/eu", bearer, "X-Robot")]


async def test_an_answer_is_asked_for_again_by_its_status(run: Run) -> None:
    statuses = [503, 429, 200]
    app = web.Application()

    async def answered(_request: web.Request) -> web.Response:
        return web.json_response({}, status=statuses.pop(0))

    app.router.add_get("/orders", answered)
    async with TestServer(app) as server:
        state = await run("retry_on_status", api=str(server.make_url("/")).rstrip("/"))
    assert (state.results["ask"].data["status_code"], statuses, state.swallowed) == (200, [], 0)


def test_every_file_of_the_corpus_is_run_here() -> None:
    source = Path(__file__).read_text()
    assert [file.stem for file in CORPUS.glob("*.yaml") if f'"{file.stem}' not in source] == []


async def test_ctx_falls_back_on_the_workload_and_context_is_a_result(run: Run) -> None:
    state = await run("shared_and_context")
    assert state.results["push"].data == {
        "page": [2, 2],
        "region": "north",
        "place": {"region": "north", "page": 1, "none": "-"},
        "shared": {"page": 2},
    }
