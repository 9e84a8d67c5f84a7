"""The http tool against a real server: requests, bodies, credentials, redirects, problems and timeouts."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from collections.abc import AsyncIterator
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.tools.http.tool import HttpTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Credential

CLIENTS = web.AppKey("clients", set[Any])
ASKED, GONE = web.AppKey("asked", asyncio.Event), web.AppKey("gone", asyncio.Event)
CREDENTIALS = {
    "token": Credential("token", "bearer", {"token": "hush"}),
    "login": Credential("login", "basic", {"username": "ann", "password": "hush"}),
    "key": Credential("key", "api_key", {"api_key": "hush"}),
    "named_key": Credential("named_key", "api_key", {"header": "X-Mine", "value": "hush"}),
    "query_key": Credential("query_key", "api_key", {"in": "query", "name": "code", "value": "hush"}),
    "grant": Credential("grant", "oauth2", {"access_token": "hush", "token_type": "bearer"}),
    "empty": Credential("empty", "bearer", {}),
}


@pytest.fixture
async def caller(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Caller("http", None, CREDENTIALS) as caller:
        yield caller


async def echo(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.app[CLIENTS].add(request.transport.get_extra_info("peername"))
    form: Any = None
    if request.content_type.startswith("multipart/") or request.content_type.endswith("urlencoded"):
        form = {
            name: value if isinstance(value, str) else [value.filename, value.content_type, value.file.read().decode()]
            for name, value in (await request.post()).items()
        }
    return web.json_response(
        {
            "method": request.method,
            "query": [list(pair) for pair in request.query.items()],
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "form": form,
            "body": None if form is not None else await request.text(),
        }
    )


async def canned(request: web.Request) -> web.Response:
    return web.Response(
        body=request.query["body"].encode("latin-1"), content_type=None, headers={"Content-Type": request.query["type"]}
    )


async def status(request: web.Request) -> web.Response:
    headers = {name: value for name, value in request.query.items() if name != "code"}
    return web.json_response({"why": "because"}, status=int(request.match_info["code"]), headers=headers)


async def redirect(request: web.Request) -> web.Response:
    return web.Response(status=int(request.query["code"]), headers={"Location": request.query["to"]})


async def loop(request: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "/loop"})


async def silent(request: web.Request) -> web.Response:
    request.app[ASKED].set()
    try:
        await asyncio.Event().wait()
    finally:
        request.app[GONE].set()
    raise AssertionError


async def long(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    if "encoded" in request.query:
        response.enable_compression()
    if "length" in request.query:
        response.content_length = 200_000
    await response.prepare(request)
    await response.write(b"x" * 200_000)
    return response


def application() -> web.Application:
    app = web.Application()
    app[ASKED], app[GONE] = asyncio.Event(), asyncio.Event()
    app[CLIENTS] = set()
    app.router.add_route("*", "/echo", echo)
    app.router.add_get("/canned", canned)
    app.router.add_get("/status/{code}", status)
    app.router.add_route("*", "/redirect", redirect)
    app.router.add_get("/loop", loop)
    app.router.add_get("/silent", silent)
    app.router.add_get("/long", long)
    return app


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async with TestServer(application()) as server:
        yield server


@pytest.fixture
async def other() -> AsyncIterator[TestServer]:
    async with TestServer(application()) as server:
        yield server


async def run(caller: Caller, url: Any, **options: Any) -> Outcome:
    return await HttpTool(max_bytes=100_000).run(caller.call(url=str(url), **options))


async def seen(caller: Caller, url: Any, **options: Any) -> Any:
    outcome = await run(caller, url, **options)
    assert outcome.error is None, outcome.error
    return outcome.data["data"]


async def test_a_response_comes_back_whole(caller: Caller, server: TestServer) -> None:
    outcome = await run(caller, server.make_url("/echo"))

    assert outcome.status == "ok"
    assert outcome.data["status_code"] == 200
    assert outcome.data["url"] == str(server.make_url("/echo"))
    assert outcome.data["headers"]["content-type"] == "application/json; charset=utf-8"
    assert outcome.data["data"]["method"] == "GET"
    assert 0 < outcome.data["elapsed"] < 60
    assert outcome.helpers["http"] == {"status": 200, "headers": outcome.data["headers"]}


async def test_query_parameters_may_be_lists_and_join_those_of_the_address(caller: Caller, server: TestServer) -> None:
    params = {"a": [1, [2.5, "x y&z"]], "b": True, "c": None, "d": {"e": 1}}

    assert (await seen(caller, f"{server.make_url('/echo')}?z=0", params=params))["query"] == [
        ["z", "0"], ["a", "1"], ["a", "2.5"], ["a", "x y&z"], ["b", "true"], ["d", '{"e":1}'],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "body", "media_type", "sent"),
    [
        ("body", {"a": [1, "ü"]}, "application/json", '{"a":[1,"ü"]}'),
        ("body", [1, 2], "application/json", "[1,2]"),
        ("body", '{"a": 1}', "application/json", '{"a": 1}'),
        ("body", "{not json", "text/plain; charset=utf-8", "{not json"),
        ("body", 5, "application/json", "5"),
        ("json", "text", "application/json", '"text"'),
        ("data", "a=1&b=2", "application/x-www-form-urlencoded", {"a": "1", "b": "2"}),
        ("data", '{"a": 1}', "application/json", '{"a": 1}'),
        ("data", {"a": [1, "ü"]}, "application/json", '{"a":[1,"ü"]}'),
        ("data", [1, 2], "application/json", "[1,2]"),
        ("form", {"a": [1, 2], "b": "x y"}, "application/x-www-form-urlencoded", {"a": "2", "b": "x y"}),
        (
            "form",
            {"a": 1, "f": {"filename": "f.csv", "content": "x,y", "content_type": "text/csv"}},
            "multipart/form-data",
            {"a": "1", "f": ["f.csv", "text/csv", "x,y"]},
        ),
        (
            "form",
            {"f": {"filename": "f", "content_base64": base64.b64encode(b"hi").decode()}},
            "multipart/form-data",
            {"f": ["f", "application/octet-stream", "hi"]},
        ),
    ],
)  # fmt: skip
async def test_bodies_are_sent_as_what_they_are(
    caller: Caller, server: TestServer, kind: str, body: Any, media_type: str, sent: Any
) -> None:
    got = await seen(caller, server.make_url("/echo"), method="put", body=body, body_kind=kind)

    assert got["method"] == "PUT"
    assert got["headers"]["content-type"].startswith(media_type)
    assert (got["body"] if got["form"] is None else got["form"]) == sent


@pytest.mark.parametrize("kind", ["body", "data", "form"])
@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded; charset=utf-8", "multipart/form-data"])
async def test_a_mapping_is_a_form_where_the_content_type_says_so(
    caller: Caller, server: TestServer, kind: str, media_type: str
) -> None:
    headers = {"Content-Type": media_type}

    got = await seen(
        caller, server.make_url("/echo"), method="POST", body={"a": "x y"}, body_kind=kind, headers=headers
    )

    assert got["headers"]["content-type"].startswith(media_type)
    assert got["form"] == {"a": "x y"}


async def test_a_content_type_of_the_users_own_wins(caller: Caller, server: TestServer) -> None:
    headers = {"content-type": "application/vnd.mine+json", "X-Number": 5, "X-None": None}

    got = await seen(caller, server.make_url("/echo"), method="POST", body={"a": 1}, headers=headers)

    assert got["headers"]["content-type"] == "application/vnd.mine+json"
    assert got["headers"]["x-number"] == "5"
    assert "x-none" not in got["headers"]
    assert got["headers"]["idempotency-key"] == "key-1"


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ("token", "authorization", "Bearer hush"),
        ("login", "authorization", "Basic " + base64.b64encode(b"ann:hush").decode()),
        ("key", "x-api-key", "hush"),
        ("named_key", "x-mine", "hush"),
        ("grant", "authorization", "Bearer hush"),
        ({"type": "bearer", "token": "hush"}, "authorization", "Bearer hush"),
        ({"type": "api_key", "credential": "key", "header": "X-Two"}, "x-two", "hush"),
        ({"first": "token", "second": "named_key"}, "x-mine", "hush"),
    ],
)  # fmt: skip
async def test_credentials_travel_in_their_header(
    caller: Caller, server: TestServer, auth: Any, header: str, value: str
) -> None:
    assert (await seen(caller, server.make_url("/echo"), auth=auth))["headers"][header] == value


async def test_a_key_in_the_query_is_sent_but_not_shown(caller: Caller, server: TestServer) -> None:
    outcome = await run(caller, f"{server.make_url('/echo')}?page=1&access_token=mine", auth="query_key")

    assert outcome.data["data"]["query"] == [["page", "1"], ["access_token", "mine"], ["code", "hush"]]
    assert outcome.data["url"] == f"{server.make_url('/echo')}?page=1&access_token=***&code=***"


@pytest.mark.parametrize("auth", ["unknown", "empty", 5, {"type": "basic"}])
async def test_a_credential_that_cannot_be_used_is_a_problem_of_auth(caller: Caller, auth: Any) -> None:
    problem = (await run(caller, "http://127.0.0.1:1/", auth=auth)).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("auth", False)


@pytest.mark.parametrize(
    ("media_type", "body", "expected"),
    [
        ("application/json", '{"a": 9007199254740993}', {"a": "9007199254740993"}),
        ("application/hal+json; charset=utf-8", "[1]", [1]),
        ("application/json", "{broken", "{broken"),
        ("text/plain", '{"a": 1}', {"a": 1}),
        ("text/plain", "12", "12"),
        ("text/html", "[x]", "[x]"),
        ("text/plain; charset=latin-1", "\xfc", "ü"),
        ("text/plain", "\xff", "�"),
        ("image/png", "\x89P", {"base64": "iVA=", "media_type": "image/png"}),
        ("application/xml", "<a/>", "<a/>"),
        ("text/plain", "", None),
    ],
)  # fmt: skip
async def test_bodies_come_back_as_values_text_or_base64(
    caller: Caller, server: TestServer, media_type: str, body: str, expected: Any
) -> None:
    assert await seen(caller, server.make_url("/canned"), params={"type": media_type, "body": body}) == expected


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (400, "client_error", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (408, "timeout", True),
        (422, "client_error", False),
        (429, "rate_limit", True),
        (500, "server_error", True),
        (503, "server_error", True),
    ],
)  # fmt: skip
async def test_a_bad_status_is_a_problem_that_keeps_the_response(
    caller: Caller, server: TestServer, code: int, kind: str, retryable: bool
) -> None:
    outcome = await run(caller, f"{server.make_url(f'/status/{code}')}?token=hush")

    assert outcome.status == "error"
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable, outcome.error.http_status) == (kind, retryable, code)
    assert outcome.data["data"] == {"why": "because"}
    assert outcome.helpers["http"]["status"] == code
    assert "hush" not in repr(outcome.error)


async def test_retry_after_is_seconds_whether_the_server_says_seconds_or_a_date(
    caller: Caller, server: TestServer
) -> None:
    url = server.make_url("/status/429")
    soon = format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=100), usegmt=True)

    waits = []
    for value in ("7", soon, "Mon, 01 Jan 2001 00:00:00 GMT", "later"):
        error = (await run(caller, url, params={"Retry-After": value})).error
        assert error is not None
        waits.append(error.retry_after)

    assert waits[0] == 7
    assert 90 < waits[1] <= 100
    assert waits[2:] == [0, None]


@pytest.mark.parametrize(
    ("code", "method", "then", "body"),
    [
        (301, "POST", "GET", ""),
        (302, "PUT", "PUT", "[1]"),
        (303, "PUT", "GET", ""),
        (307, "POST", "POST", "[1]"),
        (308, "POST", "POST", "[1]"),
    ],
)  # fmt: skip
async def test_redirects_keep_or_change_the_method_as_their_status_says(
    caller: Caller, server: TestServer, code: int, method: str, then: str, body: str
) -> None:
    url = server.make_url("/redirect").with_query(code=code, to="/echo?a=1")

    got = await seen(caller, url, method=method, body=[1], auth="token")

    assert (got["method"], got["body"], got["query"]) == (then, body, [["a", "1"]])
    assert got["headers"]["authorization"] == "Bearer hush"


async def test_credentials_are_not_taken_to_another_origin(
    caller: Caller, server: TestServer, other: TestServer
) -> None:
    url = server.make_url("/redirect").with_query(code=307, to=str(other.make_url("/echo")))
    headers = {"Cookie": "a=b", "X-Auth-Token": "hush", "X-Plain": "seen"}

    for auth in ("token", "named_key", "query_key", "login"):
        got = await seen(caller, url, auth=auth, headers=headers)

        assert "hush" not in str(got)
        assert {"authorization", "cookie", "x-mine", "x-auth-token"}.isdisjoint(got["headers"])
        assert got["headers"]["x-plain"] == "seen"


async def test_redirects_come_to_an_end(caller: Caller, server: TestServer) -> None:
    url = server.make_url("/redirect")
    first = await run(caller, url.with_query(code=302, to="/echo"), follow_redirects=False)
    endless = await run(caller, server.make_url("/loop"))
    away = await run(caller, url.with_query(code=302, to="file:///etc/passwd"))

    assert first.data["status_code"] == 302
    assert endless.error is not None
    assert "more than 10 times" in endless.error.message
    assert away.error is not None
    assert "not http" in away.error.message
    assert endless.error.kind == away.error.kind == "client_error"


async def test_a_body_that_is_too_long_is_refused(caller: Caller, server: TestServer) -> None:
    for query in ("", "?length=1", "?encoded=1"):
        problem = (await run(caller, f"{server.make_url('/long')}{query}")).error

        assert problem is not None
        assert (problem.kind, problem.code, problem.retryable) == ("storage_quota", "response_too_large", False)


async def test_a_server_that_does_not_answer_in_time_may_be_asked_again(caller: Caller, server: TestServer) -> None:
    outcome = await run(caller, server.make_url("/silent"), timeout=0.1)

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("timeout", True)
    assert "0.1 s" in outcome.error.message
    assert outcome.helpers == {"http": {"status": None, "headers": {}}}


async def test_the_calls_timeout_binds_the_request(caller: Caller, server: TestServer) -> None:
    call = caller.call(url=str(server.make_url("/silent")), limit=0.1)

    outcome = await HttpTool().run(call)

    assert outcome.error is not None
    assert outcome.error.kind == "timeout"


async def test_a_cancelled_request_closes_its_connection(caller: Caller, server: TestServer) -> None:
    task = asyncio.create_task(run(caller, server.make_url("/silent")))
    await server.app[ASKED].wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await server.app[GONE].wait()


@pytest.mark.parametrize("url", ["", "/relative", "ftp://host/x", "http://", "http://hush@@[/"])
async def test_an_address_that_is_none_is_the_tasks_own_fault(caller: Caller, url: str) -> None:
    problem = (await run(caller, url)).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("client_error", False)
    assert "hush" not in problem.message


@pytest.mark.parametrize(
    "options",
    [
        {"headers": "X: y"},
        {"params": 5},
        {"params": ["a"]},
        {"body": {"f": {"filename": "f", "content_base64": "?"}}, "body_kind": "form"},
    ],
)
async def test_options_of_the_wrong_shape_are_the_tasks_own_fault(
    caller: Caller, server: TestServer, options: Any
) -> None:
    problem = (await run(caller, server.make_url("/echo"), **options)).error

    assert problem is not None
    assert (problem.kind, problem.code) == ("client_error", "request_invalid")


async def test_a_header_that_would_break_the_request_is_refused(caller: Caller, server: TestServer) -> None:
    problem = (await run(caller, server.make_url("/echo"), headers={"X-A": "b\r\nX-Evil: hush"})).error

    assert problem is not None
    assert problem.kind == "client_error"
    assert "hush" not in problem.message


async def test_a_host_that_refuses_may_be_asked_again_and_its_address_shows_no_secret(caller: Caller) -> None:
    url = f"http://ann:hush@127.0.0.1:{unused_port()}/path?token=hush"

    problem = (await run(caller, url)).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("connection", True)
    assert "127.0.0.1" in problem.message
    assert "/path" in problem.message
    assert "hush" not in repr(problem)


async def test_calls_share_connections(caller: Caller, server: TestServer) -> None:
    for _ in range(5):
        await seen(caller, server.make_url("/echo"))

    assert len(server.app[CLIENTS]) == 1
