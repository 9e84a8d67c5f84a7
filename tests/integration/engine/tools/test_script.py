"""The script tool and its loader: from files, HTTP and S3, with and without credentials."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.programs.script import ScriptTool
from noetl.engine.tools.programs.source import MAX_SCRIPT, load_script
from noetl.errors import Denied, InputError, NoetlError, NotFound, Unavailable
from noetl.testing.servers.s3 import running_s3

CallOf = Callable[..., Call]


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """A web server that has one script, wants a header for another and is broken at a third."""

    async def answer(request: web.Request) -> web.Response:
        match request.path:
            case "/job.py":
                return web.Response(text="result = 'from the web'")
            case "/guarded.py":
                given = request.headers.get("Authorization") or request.headers.get("X-Key") or ""
                return web.Response(text=given) if given else web.Response(status=401)
            case "/large.py":
                return web.Response(body=b"#" * (MAX_SCRIPT + 1))
            case "/broken.py":
                return web.Response(status=503)
        return web.Response(status=404)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0)
    await place.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


async def test_a_python_script_runs_with_its_input(call_of: CallOf, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("def main(n):\n    return n + 1")
    tool = ScriptTool(processes=1, cache=tmp_path)
    outcome = await tool.run(call_of("script", script={"uri": f"file://{tmp_path}/job.py"}, input={"n": 1}))
    assert outcome.data == 2


async def test_a_shell_script_runs_with_its_environment(call_of: CallOf, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text('echo "$REGION"')
    tool = ScriptTool(processes=1, cache=tmp_path)
    outcome = await tool.run(call_of("script", script=str(tmp_path / "job.sh"), env={"REGION": "eu"}))
    assert outcome.data["stdout"] == "eu\n"


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"script": {"uri": "job.py"}, "job": "python"}, "schema", "job is a mapping with an image"),
        ({"script": {"uri": "job.rb"}}, "schema", "neither in .py nor in .sh"),
        ({"script": {"uri": "/no/where.py"}}, "not_found", "/no/where.py"),
        ({"script": {"uri": "ftp://x/job.py"}}, "schema", "none of file, http, s3 and gcs"),
        ({"script": {"uri": "s3://x/job.py", "source": {"type": "http"}}}, "schema", "no address of the type http"),
        ({"script": {"uri": "job.py", "source": {"auth": "gone"}}}, "not_found", "'gone'"),
        ({"script": {"source": {}}}, "schema", "script takes a mapping"),
        ({}, "schema", "script takes a mapping"),
    ],
)
async def test_problems_say_what_is_wrong(
    call_of: CallOf, tmp_path: Path, options: dict[str, Any], kind: str, words: str
) -> None:
    outcome = await ScriptTool(processes=1, cache=tmp_path).run(call_of("script", options=options))
    assert outcome.error is not None
    assert outcome.error.kind == kind
    assert words in outcome.error.message


async def test_a_script_is_loaded_over_http(call_of: CallOf, site: str) -> None:
    assert await load_script(f"{site}/job.py", call_of("python")) == "result = 'from the web'"


@pytest.mark.parametrize(
    ("type_name", "data", "expected"),
    [
        ("bearer", {"token": "t0k"}, "Bearer t0k"),
        ("basic", {"username": "ann", "password": "pw"}, f"Basic {b64encode(b'ann:pw').decode()}"),
        ("api_key", {"key": "k3y", "header": "X-Key"}, "k3y"),
    ],
)
async def test_a_credential_logs_in_over_http(
    call_of: CallOf, credentials: dict[str, Credential], site: str, type_name: str, data: dict[str, str], expected: str
) -> None:
    credentials["web"] = Credential("web", type_name, data)
    spec = {"uri": f"{site}/guarded.py", "source": {"type": "http", "auth": "web"}}
    assert await load_script(spec, call_of("python")) == expected


@pytest.mark.parametrize(
    ("path", "error"),
    [("guarded.py", Denied), ("gone.py", NotFound), ("broken.py", Unavailable), ("large.py", InputError)],
)
async def test_a_server_that_does_not_give_the_script_is_told_apart(
    call_of: CallOf, site: str, path: str, error: type[NoetlError]
) -> None:
    with pytest.raises(error, match=path):
        await load_script(f"{site}/{path}?token=s3cret", call_of("python"))


async def test_a_server_that_is_not_there_may_be_tried_again_and_no_secret_is_told(call_of: CallOf) -> None:
    with pytest.raises(Unavailable) as caught:
        await load_script("http://ann:pw@127.0.0.1:1/job.py?token=s3cret", call_of("python"))
    assert "s3cret" not in caught.value.message
    assert "pw" not in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
async def test_a_file_the_worker_may_not_read_is_denied(call_of: CallOf, tmp_path: Path) -> None:
    (tmp_path / "job.py").touch(mode=0o000)
    with pytest.raises(Denied):
        await load_script(str(tmp_path / "job.py"), call_of("python"))


async def test_a_script_that_is_no_text_is_refused(call_of: CallOf, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        await load_script(str(tmp_path / "job.py"), call_of("python"))


@pytest.mark.service
async def test_a_script_is_loaded_from_s3(call_of: CallOf, credentials: dict[str, Credential], tmp_path: Path) -> None:
    import obstore
    from obstore.store import S3Store

    with running_s3(tmp_path, "scripts") as server:
        config = {"endpoint": server.endpoint, "access_key_id": "noetl", "secret_access_key": "noetl-secret"}
        store = S3Store("scripts", config={**config, "region": "us-east-1"}, client_options={"allow_http": True})
        await obstore.put_async(store, "jobs/a job.py", b"result = 1")
        data = {"endpoint": server.endpoint, "access_key_id": "noetl", "secret_access_key": "noetl-secret"}
        credentials["bucket"] = Credential("bucket", "s3", data)
        source = {"type": "s3", "auth": "bucket"}
        assert (
            await load_script({"uri": "s3://scripts/jobs/a%20job.py", "source": source}, call_of("python"))
            == "result = 1"
        )
        with pytest.raises(NotFound, match=r"gone\.py"):
            await load_script({"uri": "s3://scripts/gone.py", "source": source}, call_of("python"))
