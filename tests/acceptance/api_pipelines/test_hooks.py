"""Webhooks over HTTP: who is let in, who is not and cannot tell why, and what comes again."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.acceptance.api_pipelines.conftest import Parts
from tests.integration.api.serving import HOME, Server, running
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.api.access.hooks import HookLimits
from noetl.api.problems import TooMany
from noetl.errors import InputError
from noetl.model.stream import Scope
from noetl.model.task import TaskReport
from noetl.pipelines.sources.signatures import signature_of

pytestmark = pytest.mark.service

SECRET = "whsec-0123456789"
BODY = b'{"id": 1, "amount": 2.5}'
DAG = """
name: shop
jobs:
  - name: orders
    source: {kind: webhook, webhook_path: /in/orders, secret: shop-hook}
    unique_key: [id]
    schema: {columns: {id: bigint not null, amount: double}}
  - name: pushes
    source: {kind: webhook, webhook_path: /pushes, secret: shop-hook, signature: github}
    config: {delivery: true}
    unique_key: [_delivery, _row]
  - name: pings
    source: {kind: webhook, webhook_path: /pings, signature: none}
    config: {delivery: true}
    unique_key: [_delivery, _row]
  - name: by_hand
    operator: made_up
    runtime: dispatcher
"""
PATH = "/api/hooks/default/default/shop/in/orders"
LIMITS = HookLimits(max_bytes=100, at_once=2, per_minute=4)


async def built(testbed: TaskTestbed, text: str = DAG) -> None:
    """Deploy, build with nothing and activate a DAG."""
    deployed = await testbed.deploy(text)
    await worked(testbed)
    assert (await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 10)).status == "completed"
    await testbed.dags.activate(testbed.scope, deployed.plan.dag, deployed.dag_version_id, by="tests")


async def worked(testbed: TaskTestbed) -> None:
    """Let all that waits end well, and make nothing."""
    while grants := await testbed.claim():
        for grant in grants:
            await testbed.tasks.complete(grant, TaskReport(status="ok"))


@pytest.fixture
async def hooked(parts: Parts, testbed: TaskTestbed) -> AsyncIterator[Server]:
    """A server that asks callers for tokens, with a DAG that has webhooks; senders have none."""
    services, projections = parts
    assert services.credentials is not None
    await services.credentials.put(HOME, "shop-hook", "api_key", {"key": SECRET, "previous": "the one before"})
    await built(testbed)
    async with running(replace(services, auth_required=True, hook_limits=LIMITS), projections, auth=True) as server:
        yield server


def signed(body: bytes = BODY, secret: str = SECRET, *, ago: int = 0, delivery: str | None = None) -> dict[str, str]:
    """Return the headers of a request that was signed so many seconds ago."""
    value = signature_of(secret.encode(), body, seconds=int(time.time()) - ago, delivery=delivery)
    return {"X-Noetl-Signature": value} | ({"X-Noetl-Delivery": delivery} if delivery else {})


async def send(
    server: Server, path: str = PATH, body: bytes = BODY, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Send a body and return status and answer."""
    given = signed(body) if headers is None else headers
    async with server.session.post(server.url + path, data=body, headers=given) as response:
        return response.status, json.loads(await response.read())


async def sent_tasks(testbed: TaskTestbed) -> list[Any]:
    """Return the tasks that something was sent to, in the order they were made."""
    return await testbed.rows(
        "SELECT job, execution_id, inputs_ref ->> 'sha256' AS sha256 FROM noetl.task"
        " WHERE dedupe_key LIKE 'sent:%' ORDER BY created_event_id"
    )


async def test_what_is_sent_is_given_to_a_task(hooked: Server, testbed: TaskTestbed) -> None:
    """INV-68."""
    status, answer = await send(hooked)
    assert (status, answer["new"]) == (202, True)
    (grant,) = await testbed.claim("orders")
    assert (str(grant.execution_id), grant.source, grant.inputs) == (answer["execution_id"], "webhook", ())
    assert grant.sent is not None
    assert await testbed.payloads.fetch(HOME, grant.sent) == BODY
    assert await testbed.tasks.fetch(grant.lease) == grant
    told = await testbed.rows("SELECT meta ->> 'requested_by' FROM noetl.event WHERE event_type = 'execution.requested'"
                             " AND execution_id = $1", grant.execution_id)  # fmt: skip
    assert told[0][0] == "webhook /in/orders"


async def test_what_comes_again_is_the_same_run(hooked: Server, testbed: TaskTestbed) -> None:
    """INV-68."""
    headers = signed()
    answers = await asyncio.gather(*(send(hooked, headers=headers) for _ in range(2)))
    assert sorted(answer["new"] for _, answer in answers) == [False, True]
    assert len({answer["execution_id"] for _, answer in answers}) == len(await sent_tasks(testbed)) == 1
    named = await send(hooked, headers=signed(delivery="order-1"))
    again = await send(hooked, headers=signed(delivery="order-1", ago=30))
    assert (named[1]["new"], again[1]) == (True, {"execution_id": named[1]["execution_id"], "new": False})
    assert len(await sent_tasks(testbed)) == 2


async def test_a_delivery_that_comes_again_with_another_body_is_refused(hooked: Server, testbed: TaskTestbed) -> None:
    """INV-68."""
    await send(hooked, headers=signed(delivery="order-1"))
    other = b'{"id": 2}'
    status, answer = await send(hooked, body=other, headers=signed(other, delivery="order-1"))
    assert (status, answer["code"]) == (422, "idempotency_key_reused")
    assert len(await sent_tasks(testbed)) == 1


async def test_another_version_does_not_run_it_again(hooked: Server, testbed: TaskTestbed) -> None:
    """INV-68."""
    headers = signed()
    _, first = await send(hooked, headers=headers)
    await worked(testbed)
    await built(testbed, DAG.replace("amount: double", "amount: double, note: string"))
    _, again = await send(hooked, headers=headers)
    assert again == {"execution_id": first["execution_id"], "new": False}


def strange() -> dict[str, tuple[str, bytes, dict[str, str]]]:
    """Return requests that are none of ours, each with what is wrong with it."""
    return {
        "no signature": (PATH, BODY, {}),
        "another secret": (PATH, BODY, signed(secret="guessed")),
        "an empty secret": (PATH, BODY, signed(secret="")),
        "another body": (PATH, b'{"id": 9}', signed()),
        "an old one": (PATH, BODY, signed(ago=400)),
        "no such path": (PATH + "s", BODY, signed()),
        "no such DAG": (PATH.replace("shop", "shopp"), BODY, signed()),
        "no such organization": (PATH.replace("default/default", "default/nobody"), BODY, signed()),
        "no name of an organization": (PATH.replace("default/default", "default/%20"), BODY, signed()),
        "another way of signing": ("/api/hooks/default/default/shop/pushes", BODY, signed()),
        "a bad body, too": (PATH, b"{", {}),
    }


@pytest.mark.parametrize("case", list(strange()))
async def test_whatever_is_wrong_the_answer_is_the_same(case: str, hooked: Server, testbed: TaskTestbed) -> None:
    """INV-68."""
    path, body, headers = strange()[case]
    status, answer = await send(hooked, path, body, headers)
    assert status == 401
    assert answer == (await send(hooked, headers={}))[1]
    assert not await sent_tasks(testbed)


async def test_a_token_of_the_api_opens_no_webhook(hooked: Server, testbed: TaskTestbed) -> None:
    token, _ = await hooked.services.tokens.create(HOME, "an admin", "admin")
    status, _ = await send(hooked, headers={"Authorization": f"Bearer {token.reveal()}"})
    assert (status, await sent_tasks(testbed)) == (401, [])


async def test_what_is_too_large_is_refused_before_it_is_read_whole(hooked: Server, testbed: TaskTestbed) -> None:
    """INV-68."""
    body = b'{"id": 1, "note": "' + b"x" * 200 + b'"}'
    for headers in (signed(body), {}):
        status, answer = await send(hooked, body=body, headers=headers)
        assert (status, answer["code"]) == (413, "too_large")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"0123456789"

    async with hooked.session.post(hooked.url + PATH, data=pieces()) as response:
        assert response.status == 413
    assert not await sent_tasks(testbed)


BAD: list[tuple[bytes, str]] = [
    (b"", "the body is empty"),
    (b"{", "the body is not JSON"),
    (b"[1]", "holds a number, and objects are asked for"),
    (b'{"amount": 1}', "row 1 has no 'id'"),
    (b'[{"id": 1}, {"id": "2"}]', "row 2, id is text that is no int64"),
]


@pytest.mark.parametrize(("body", "said"), BAD)
async def test_a_body_no_rows_can_be_made_of_is_refused_with_the_reason(
    body: bytes, said: str, hooked: Server, testbed: TaskTestbed
) -> None:
    status, answer = await send(hooked, body=body)
    assert (status, said in answer["detail"]) == (400, True), answer
    assert not await sent_tasks(testbed)


async def test_the_secret_that_was_good_before_is_taken_while_it_is_kept(hooked: Server) -> None:
    assert (await send(hooked, headers=signed(secret="the one before")))[0] == 202


async def test_others_sign_in_their_own_way_or_not_at_all(hooked: Server, testbed: TaskTestbed) -> None:
    digest = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    pushes = "/api/hooks/default/default/shop/pushes"
    first = await send(hooked, pushes, headers={"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": "1"})
    again = await send(hooked, pushes, headers={"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": "2"})
    assert (first[0], again) == (202, (202, {"execution_id": first[1]["execution_id"], "new": False}))
    pings = "/api/hooks/default/default/shop/pings"
    for headers, new in (({}, True), ({}, True), ({"X-Noetl-Delivery": "a"}, True), ({"X-Noetl-Delivery": "a"}, False)):
        status, answer = await send(hooked, pings, headers=headers)
        assert (status, answer["new"]) == (202, new)
    assert [row["job"] for row in await sent_tasks(testbed)] == ["pushes", "pings", "pings", "pings"]


async def test_more_than_a_path_takes_in_a_minute_wait(hooked: Server) -> None:
    found = [await send(hooked, headers=signed(delivery=f"order-{number}")) for number in range(5)]
    assert [status for status, _ in found] == [202, 202, 202, 202, 429]
    assert found[-1][1]["code"] == "too_many"
    assert (await send(hooked, "/api/hooks/default/default/shop/pings", headers={}))[0] == 202, "others are not held up"
    assert (await send(hooked, headers={}))[0] == 401


async def test_requests_that_never_end_keep_no_place_and_whole_ones_do(hooked: Server) -> None:
    """INV-194: as many half-sent requests as there are places leave the gate open; requests that are worked on do not."""
    begun, never = asyncio.Semaphore(0), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        begun.release()
        await never.wait()

    async def hang() -> None:
        async with aiohttp.ClientSession() as session, session.post(hooked.url + PATH, data=slowly()):
            pass

    hanging = [asyncio.create_task(hang()) for _ in range(2)]
    for _ in hanging:
        await begun.acquire()
    assert (await send(hooked))[0] == 202
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)

    gate = hooked.services.hooks
    async with gate.entered(), gate.entered():
        with pytest.raises(TooMany):
            async with gate.entered():
                pass
    async with gate.entered():
        pass


async def test_organizations_with_the_same_path_have_their_own_secrets_and_runs(
    hooked: Server, testbed: TaskTestbed, tmp_path: Path
) -> None:
    """INV-68."""
    scope = Scope("default", "another")
    credentials = hooked.services.credentials
    assert credentials is not None
    await credentials.put(scope, "shop-hook", "api_key", {"key": "theirs"})
    theirs = TaskTestbed(
        testbed.database, testbed.ledger, tmp_path / "theirs", scope=scope, payloads=testbed.payloads, node=2
    )
    await built(theirs)
    path = PATH.replace("default/default", "default/another")
    assert (await send(hooked, path))[0] == 401, "ours is not theirs"
    status, answer = await send(hooked, path, headers=signed(secret="theirs"))
    assert status == 202
    assert [str(row["execution_id"]) for row in await sent_tasks(theirs)] == [answer["execution_id"]]
    assert not await sent_tasks(testbed)
    await theirs.engine.close()


async def test_a_webhook_is_not_started_by_hand(hooked: Server, testbed: TaskTestbed) -> None:
    with pytest.raises(InputError, match="started by what is sent to it"):
        await testbed.engine.runs.emit(HOME, "shop", "orders", requested_by="tests")


async def test_a_source_is_emitted_by_hand_once_for_a_key(server: Server, testbed: TaskTestbed) -> None:
    await built(testbed)
    path = "/api/dags/shop/jobs/by_hand/emit"
    first = await server.call("POST", path, status=201, headers={"Idempotency-Key": "one"})
    again = await server.call("POST", path, status=201, headers={"Idempotency-Key": "one"})
    other = await server.call("POST", path, status=201)
    assert first == again
    assert first["execution_id"] != other["execution_id"]
    assert (first["dag"], first["status"]) == ("shop", "open")
    assert (await server.call("POST", "/api/dags/shop/jobs/nothing/emit", status=404))["code"] == "not_found"
    assert "not kept running" in (await server.call("POST", "/api/dags/shop/jobs/by_hand/pause", status=400))["detail"]
