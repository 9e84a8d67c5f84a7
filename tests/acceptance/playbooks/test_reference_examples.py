"""The five examples of the language's reference, unmodified: only addresses and credentials come from the workload."""

from __future__ import annotations

from pathlib import Path

import asyncpg
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.testing.engines.playbooks import Playbooks

GOOD = Path(__file__).parents[2] / "playbooks" / "good"


def text_of(name: str) -> str:
    """Return an example of the corpus."""
    return (GOOD / f"{name}.yaml").read_text()


async def test_pages_are_pulled_to_the_last_one(playbooks: Playbooks, api: str) -> None:
    state = await playbooks.run(text_of("pages"), {"api": api})

    assert (state.status, state.error, state.swallowed) == ("COMPLETED", None, 0)
    last = await playbooks.data(state, "pull")
    assert last["data"]["paging"] == {"hasMore": False, "page": 4, "pageSize": 10, "total": 35}
    assert [row["id"] for row in last["data"]["data"]] == [31, 32, 33, 34, 35]


async def test_branches_meet_once_and_go_round_until_they_are_done(playbooks: Playbooks) -> None:
    state = await playbooks.run(text_of("branches"))

    assert state.status == "COMPLETED", state.error
    assert state.runs == {"start": 1, "a": 1, "b": 1, "join": 2, "end": 1}
    assert state.ctx == {"left": 0, "done": True}
    assert state.results["join"].data == {"left": 0}


async def test_a_collection_is_looped_over_and_a_table_is_drained(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"path": request.path})

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        await user_database.execute(
            "CREATE TABLE job (id int PRIMARY KEY, url text, status text DEFAULT 'pending', claimed_at timestamptz)"
        )
        await user_database.execute(
            "INSERT INTO job (id, url) SELECT n, $1 || '/job/' || n FROM generate_series(1, 170) AS n", url
        )
        state = await playbooks.run(text_of("loops"), {"api": url, "items": [{"id": n} for n in range(20)]})

    assert state.status == "COMPLETED", state.error
    assert sorted(asked) == sorted([f"/x/{n}" for n in range(20)] + [f"/job/{n}" for n in range(1, 171)])
    each, drain = state.results["each"].data, state.results["drain"].data
    assert (each["total"], each["completed"], each["failed"]) == (20, 20, 0)
    assert [row["data"]["path"] for row in each["results"]] == [f"/x/{n}" for n in range(20)]
    assert (drain["total"], drain["completed"], drain["failed"]) == (170, 170, 0)
    assert await user_database.fetchval("SELECT count(*) FROM job WHERE status = 'done'") == 170


async def test_a_workbook_a_child_and_duckdb_work_together(playbooks: Playbooks, api: str) -> None:
    async def token(_request: web.Request) -> web.Response:
        return web.json_response({"access_token": "t-0815-secret", "expires_in": 3600})

    app = web.Application()
    app.router.add_post("/token", token)
    await playbooks.register(text_of("pages"))
    async with TestServer(app) as server:
        text = text_of("keychain_and_workbook").replace("https://idp/token", str(server.make_url("/token")))
        hot = await playbooks.run(text, {"api": api})
        cold = await playbooks.run(text, {"api": api, "t": 20})

    assert hot.status == "COMPLETED", hot.error
    assert hot.results["flag"].data == {"hot": True}
    assert hot.runs == {"flag": 1, "child": 1, "stats": 1}
    assert hot.results["stats"].data["rows"] == [{"n": 1}]
    assert cold.status == "COMPLETED", cold.error
    assert cold.runs == {"flag": 1, "stats": 1}


async def test_admission_selection_references_and_frames_as_one_body(
    playbooks: Playbooks, api: str, user_database: asyncpg.Connection
) -> None:
    sent: list[list[dict[str, int]]] = []

    async def heavy(request: web.Request) -> web.Response:
        size = int(request.query["payload_kb"]) * 1024
        return web.json_response({"data": ["x" * size], "paging": {"total": 1}})

    async def sink(request: web.Request) -> web.Response:
        sent.append(await request.json())
        return web.json_response({"taken": len(sent[-1])})

    app = web.Application()
    app.router.add_get("/api/v1/heavy", heavy)
    app.router.add_post("/sink", sink)
    await user_database.execute("CREATE TABLE t (id int); INSERT INTO t SELECT generate_series(1, 120)")
    async with TestServer(app) as server:
        state = await playbooks.run(text_of("misc"), {"api": str(server.make_url("")).rstrip("/")})
        refused = await playbooks.run(text_of("misc"), {"enabled": False})

    assert state.status == "COMPLETED", state.error
    assert state.ctx["n"] == 120
    assert state.ctx["big_ref"]["bytes"] > 100 * 1024
    assert state.results["big"].selected == {"total": 1}
    assert state.results["big"].data is None
    assert len((await playbooks.data(state, "load"))["data"]["data"][0]) == 100 * 1024
    assert sorted(row["id"] for rows in sent for row in rows) == list(range(1, 121))
    assert state.results["bulk"].data["completed"] == 120
    assert state.runs["tidy"] == 1
    assert (refused.status, refused.runs) == ("COMPLETED", {"gate": 1, "tidy": 1})
