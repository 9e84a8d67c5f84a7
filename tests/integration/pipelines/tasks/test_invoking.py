"""Functions outside get whole grants, and complete them like any worker; one that cannot be reached costs an attempt."""

from __future__ import annotations

import asyncio
import io
import json
import urllib.request
import zipfile
from collections.abc import Iterator

import boto3
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from moto.server import ThreadedMotoServer
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.errors import InputError, NotFound, Unavailable
from noetl.model.task import TaskGrant
from noetl.pipelines.tasks.functions.aws import LambdaInvoker
from noetl.pipelines.tasks.functions.http import HttpInvoker
from noetl.pipelines.tasks.functions.runner import FunctionRunner, Invokers

DAG = """
name: outside
jobs:
  - name: call
    operator: made_up
    runtime: lambda
    config: {config}
"""


async def _granted(testbed: TaskTestbed, config: str) -> TaskGrant:
    await testbed.deploy(DAG.replace("{config}", config))
    (grant,) = await testbed.tasks.claim("worker", ("lambda",), 1, 0)
    return grant


async def test_a_function_behind_http_gets_the_grant_and_completes_the_task(testbed: TaskTestbed) -> None:
    got: list[TaskGrant] = []

    async def function(request: web.Request) -> web.Response:
        got.append(msgspec.json.decode(await request.read(), type=TaskGrant))
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/run", function)
    async with TestServer(app, host="127.0.0.1") as server:
        await testbed.deploy(DAG.replace("{config}", f"{{url: '{server.make_url('/run')}'}}"))
        invoker = HttpInvoker()
        runner = FunctionRunner("functions", testbed.tasks, Invokers({"url": invoker}))
        assert await runner.run_once() == 1
        await runner.settled()
        await invoker.close()
    (grant,) = got
    assert await testbed.tasks.fetch(grant.lease) == grant
    assert await testbed.tasks.complete(grant, testbed.report(grant)) == "Completed"


@pytest.mark.parametrize(("status", "retried"), [(503, True), (429, True), (400, False)])
async def test_a_function_that_refuses_costs_an_attempt(testbed: TaskTestbed, status: int, *, retried: bool) -> None:
    async def function(request: web.Request) -> web.Response:
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/run", function)
    async with TestServer(app, host="127.0.0.1") as server:
        await testbed.deploy(DAG.replace("{config}", f"{{url: '{server.make_url('/run')}'}}"))
        invoker = HttpInvoker()
        runner = FunctionRunner("functions", testbed.tasks, Invokers({"url": invoker}))
        await runner.run_once()
        await runner.settled()
        await invoker.close()
    (task,) = await testbed.engine.by_hand.listed(testbed.scope)
    assert (task.status, task.attempt, task.open) == ("Failed", 1, retried)
    assert f"{status}" in (task.error or "")


async def test_a_function_of_a_kind_nobody_can_invoke_fails_the_task_for_good(testbed: TaskTestbed) -> None:
    await testbed.deploy(DAG.replace("{config}", "{url: 'http://127.0.0.1:9/'}"))
    runner = FunctionRunner("functions", testbed.tasks, Invokers({}))
    await runner.run_once()
    await runner.settled()
    (task,) = await testbed.engine.by_hand.listed(testbed.scope)
    assert (task.status, task.open) == ("Failed", False)


async def test_a_runner_goes_on_until_it_is_stopped(testbed: TaskTestbed) -> None:
    runner = FunctionRunner("functions", testbed.tasks, Invokers({}))
    testbed.engine.start()
    runner.start()
    deployed = await testbed.deploy(DAG.replace("{config}", "{url: 'http://127.0.0.1:9/'}"))
    ended = await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 20)
    assert ended.status == "failed"
    await runner.stop()


@pytest.fixture
def moto_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that speaks AWS's protocols."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


async def test_a_function_of_aws_lambda_takes_the_grant(testbed: TaskTestbed, moto_url: str) -> None:
    # It only has to take the event: running it would need containers.
    await asyncio.to_thread(_with_containers, moto_url, wanted=False)
    await asyncio.to_thread(_make_function, moto_url)
    grant = await _granted(testbed, "{function: taker}")
    invoker = LambdaInvoker(region="eu-west-1", endpoint_url=moto_url)
    await invoker.invoke(grant)
    await invoker.close()
    await asyncio.to_thread(_with_containers, moto_url, wanted=True)


def _with_containers(url: str, *, wanted: bool) -> None:
    settings = json.dumps({"lambda": {"use_docker": wanted}}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/config", settings, method="POST")).close()


def _make_function(url: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("taker.py", "def run(event, context): return None")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    iam = boto3.client("iam", "eu-west-1", endpoint_url=url)
    role = iam.create_role(RoleName="taker", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    functions = boto3.client("lambda", "eu-west-1", endpoint_url=url)
    functions.create_function(
        FunctionName="taker", Runtime="python3.12", Role=role, Handler="taker.run",
        Code={"ZipFile": packed.getvalue()},
    )  # fmt: skip
    iam.close()
    functions.close()


async def test_a_missing_function_of_aws_lambda_is_named(testbed: TaskTestbed, moto_url: str) -> None:
    grant = await _granted(testbed, "{function: nobody}")
    invoker = LambdaInvoker(region="eu-west-1", endpoint_url=moto_url)
    with pytest.raises(NotFound, match="nobody"):
        await invoker.invoke(grant)
    await invoker.close()


async def test_a_grant_too_large_for_aws_lambda_is_refused(testbed: TaskTestbed, moto_url: str) -> None:
    grant = await _granted(testbed, "{function: nobody}")
    large = msgspec.structs.replace(grant, config={"function": "f", "text": "x" * 300_000})
    with pytest.raises(InputError, match="AWS Lambda takes"):
        await LambdaInvoker(region="eu-west-1", endpoint_url=moto_url).invoke(large)


async def test_aws_lambda_that_does_not_answer_is_unavailable(
    testbed: TaskTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    grant = await _granted(testbed, "{function: nobody}")
    with pytest.raises(Unavailable, match="does not answer"):
        await LambdaInvoker(region="eu-west-1", endpoint_url="http://127.0.0.1:9").invoke(grant)
