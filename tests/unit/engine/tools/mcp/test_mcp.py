"""The mcp tool against a server made with the official SDK, over both ways, and against servers that do less."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.tools.mcp.tool import McpTool
from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call, Credential

SERVER = str(Path(__file__).with_name("mcp_server.py"))
PROGRAM = {"command": sys.executable, "args": [SERVER, "stdio"]}

CallOf = Callable[..., Call]
tool = McpTool()


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, str]]:
    """The addresses of a server, by how it answers."""
    process = subprocess.Popen([sys.executable, SERVER, "http"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield {how: f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp" for how in ("events", "json")}
    finally:
        process.kill()
        process.wait(timeout=20)
        process.stdout.close()


@pytest.fixture
def ways(endpoints: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What a task says to reach the server, by the way it goes."""
    return {"stdio": PROGRAM, **{how: {"endpoint": url} for how, url in endpoints.items()}}


def problem(outcome: Outcome) -> Problem:
    assert outcome.status == "error"
    assert outcome.error is not None
    return outcome.error


@pytest.mark.parametrize("way", ["events", "json", "stdio"])
async def test_a_tool_answers_and_one_that_fails_is_a_failure(
    call_of: CallOf, ways: dict[str, dict[str, Any]], way: str
) -> None:
    where = ways[way]
    added = await tool.run(call_of("mcp", tool="add", arguments={"a": 2, "b": 3}, **where))
    assert added.status == "ok", added.error
    assert (added.data["structured"], added.data["tool"]) == ({"sum": 5}, "add")
    assert '"sum": 5' in added.data["text"]
    assert added.data["result"]["isError"] is False
    broken = await tool.run(call_of("mcp", tool="fail", arguments='{"reason": "out of ink"}', **where))
    found = problem(broken)
    assert (found.kind, found.code, found.retryable, found.source) == ("unknown", "tool_error", False, "mcp")
    assert "out of ink" in found.message
    assert broken.data["result"]["isError"] is True
    refused = problem(await tool.run(call_of("mcp", method="no/such", **where)))
    assert (refused.kind, refused.code) == ("not_found", "rpc_32601")


async def test_every_method_goes_through(call_of: CallOf, endpoints: dict[str, str]) -> None:
    async def ask(method: str, **params: Any) -> Any:
        outcome = await tool.run(call_of("mcp", endpoint=endpoints["events"], method=method, params=params))
        assert outcome.status == "ok", outcome.error
        return outcome.data

    listed = await ask("tools/list")
    assert {one["name"] for one in listed["result"]["tools"]} >= {"add", "fail"}
    assert (await ask("health"))["result"] == {}
    assert (await ask("initialize"))["result"]["serverInfo"]["version"] == "7"
    assert (await ask("resources/read", uri="notes://one"))["text"] == "the first note"
    said = (await ask("prompts/get", name="greeting", arguments={"name": "Ada"}))["result"]["messages"]
    assert said[0]["content"]["text"] == "Good day, Ada"


async def test_a_credential_says_where_a_server_is_and_who_asks(
    call_of: CallOf, credentials: dict[str, Credential], endpoints: dict[str, str]
) -> None:
    private = f"{endpoints['json']}?private"
    credentials["notes"] = Credential("notes", "mcp", {"endpoint": private, "token": "open-sesame"})
    credentials["program"] = Credential("program", "mcp", {**PROGRAM, "env": {"SHOWN": "yes"}})
    credentials["key"] = Credential("key", "bearer", {"token": "open-sesame"})
    for options, auth in (({"server": "mcp/notes"}, None), ({"endpoint": private}, "key")):
        outcome = await tool.run(call_of("mcp", tool="add", auth=auth, input={"a": 1, "b": 1}, options=options))
        assert outcome.status == "ok", outcome.error
        assert "private" not in str(outcome.data), "an address may carry a key in its query"
    told = await tool.run(call_of("mcp", server="program", tool="environment"))
    assert told.data["structured"]["SHOWN"] == "yes"
    assert not [name for name in told.data["structured"] if name.startswith("NOETL")]
    refused = problem(await tool.run(call_of("mcp", endpoint=private, tool="add")))
    assert (refused.kind, refused.http_status, refused.source) == ("auth", 401, "mcp")
    busy = problem(await tool.run(call_of("mcp", endpoint=f"{endpoints['json']}?busy", tool="add")))
    assert (busy.kind, busy.retryable, busy.retry_after) == ("server_error", True, 3.0)
    assert problem(await tool.run(call_of("mcp", server="nobody", tool="add"))).kind == "not_found"
    assert problem(await tool.run(call_of("mcp", endpoint="ftp://x", tool="add"))).kind == "schema"
    nothing = await tool.run(call_of("mcp", command="/no/such/program", tool="add"))
    assert problem(nothing).code == "process_not_started"
    died = problem(await tool.run(call_of("mcp", command=["sh", "-c", "echo no config >&2; exit 3"], tool="add")))
    assert (died.code, died.details) == ("process_died", {"stderr": "no config"})
    assert "exit code 3" in died.message


@pytest.mark.parametrize("way", ["events", "stdio"])
async def test_what_a_cancelled_task_started_ends_with_it(
    call_of: CallOf, processes: Any, ways: dict[str, dict[str, Any]], way: str
) -> None:
    call = call_of("mcp", tool="hang", arguments={"place": str(processes.place)}, **ways[way])
    work = asyncio.create_task(tool.run(call))
    server, child = await processes.written()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    if way == "stdio":
        assert await processes.ended(server, child)
    else:
        assert await processes.written() == [0], "the server lives on, and was told to stop what it did"


async def test_a_server_that_takes_too_long_is_left(call_of: CallOf, processes: Any, endpoints: dict[str, str]) -> None:
    hang = {"tool": "hang", "arguments": {"place": str(processes.place)}}
    late = asyncio.create_task(tool.run(call_of("mcp", endpoint=endpoints["json"], timeout=1.5, **hang)))
    await processes.written()
    assert problem(await late).kind == "timeout"
    assert await processes.written() == [0]
    script = f"sleep 600 & echo $$ $! > {processes.place}; wait"
    late = asyncio.create_task(tool.run(call_of("mcp", command=["sh", "-c", script], timeout=0.5, **hang)))
    started = await processes.written()
    assert problem(await late).kind == "timeout"
    assert await processes.ended(*started)


async def _answers(request: web.Request) -> web.Response:
    said = await request.json()
    match said["method"]:
        case "tools/call":
            return web.json_response({"jsonrpc": "2.0", "id": said["id"], "result": {"content": [], "n": 2**60}})
        case "tools/list":
            first = "cursor" not in said["params"]
            page = {"tools": [{"name": "a" if first else "b"}], **({"nextCursor": "2"} if first else {})}
            return web.json_response({"jsonrpc": "2.0", "id": said["id"], "result": page})
        case "html":
            return web.Response(text="<html>", content_type="text/html")
        case "cut":
            return web.Response(text='data: {"jsonrpc": "2.0"', content_type="text/event-stream")
    return web.json_response({"jsonrpc": "2.0", "id": said["id"], "error": {"code": -32601, "message": "what?"}})


@pytest.fixture
async def plain_server() -> AsyncIterator[str]:
    """A server that knows JSON-RPC and neither sessions nor greetings."""
    app = web.Application()
    app.router.add_post("/rpc", _answers)
    async with TestServer(app) as server:
        yield str(server.make_url("/rpc"))


async def test_a_server_of_plain_json_rpc_will_do(call_of: CallOf, plain_server: str) -> None:
    called = await tool.run(call_of("mcp", endpoint=plain_server, tool="any"))
    assert called.data["result"] == {"content": [], "n": str(2**60)}
    listed = await tool.run(call_of("mcp", endpoint=plain_server, method="tools/list"))
    assert listed.data["result"] == {"tools": [{"name": "a"}, {"name": "b"}]}
    for method in ("html", "cut"):
        found = problem(await tool.run(call_of("mcp", endpoint=plain_server, method=method)))
        assert (found.kind, found.code) == ("parse", "not_json_rpc")
