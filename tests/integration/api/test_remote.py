"""A worker whose server goes away, loses answers or refuses: nothing is done twice, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web
from tests.integration.api.serving import HOME, LOOP, TWO_STEPS, Server, running

from noetl.engine.dispatch.grants import CommandGrant, FrameReport
from noetl.engine.dispatch.remote import RemoteDispatch
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import Denied, LeaseLost, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.services.credentials.secret import Secret


class Wire:
    """Stands between worker and server, and can be cut before or after a request gets through."""

    def __init__(self, target: str, session: ClientSession) -> None:
        self.target = target
        self._session = session
        self.lose_answers = 0
        self.away = 0
        self.after_loss: str | None = None
        """The server that answers once an answer got lost."""
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, or not."""
        if self.away:
            self.away -= 1
            return self._cut(request)
        async with self._session.request(
            request.method, self.target + request.path_qs, data=await request.read(), headers=request.headers
        ) as answer:
            data = await answer.read()
        if self.lose_answers:
            self.lose_answers -= 1
            self.target = self.after_loss or self.target
            return self._cut(request)
        return web.Response(status=answer.status, body=data, content_type=answer.content_type)

    @staticmethod
    def _cut(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    """A wire to the server."""
    wire = Wire(server.url, server.session)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", wire.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    wire.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield wire
    await runner.cleanup()


@pytest.fixture
async def remote(wire: Wire) -> AsyncIterator[RemoteDispatch]:
    """A worker's dispatch at the other end of the wire."""
    remote = RemoteDispatch(wire.url, patience_seconds=10.0)
    yield remote
    await remote.close()


def done(grant: CommandGrant) -> CommandEnded:
    """Report a command as done."""
    return CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status="ok", data={"size": 3})


async def first_command(server: Server, remote: RemoteDispatch, source: str, path: str) -> CommandGrant:
    """Start an execution and claim its first command."""
    await server.register(source)
    await server.start(path)
    (grant,) = await remote.claim("w1", 1, 5.0)
    return grant


async def test_a_report_whose_answer_got_lost_gets_the_same_answer_again(
    server: Server, wire: Wire, remote: RemoteDispatch
) -> None:
    first = await first_command(server, remote, TWO_STEPS, "tests/two")
    wire.lose_answers = 2
    second = await remote.complete(first, done(first), worker="w1", take_next=True)
    assert second is not None
    assert second.step == "second"
    assert await remote.heartbeat([second.lease]) == []


async def test_a_report_to_a_server_that_was_replaced_is_known_to_have_been_recorded(
    server: Server, wire: Wire, remote: RemoteDispatch
) -> None:
    first = await first_command(server, remote, TWO_STEPS, "tests/two")
    async with running(server.services, server.projections, auth=False) as other:
        wire.lose_answers, wire.after_loss = 1, other.url
        assert await remote.complete(first, done(first), worker="w1", take_next=False) is None
        with pytest.raises(LeaseLost):
            await remote.complete(first, done(first), worker="w1", take_next=False)


async def test_a_commit_whose_answer_got_lost_leads_to_the_next_frame(
    server: Server, wire: Wire, remote: RemoteDispatch
) -> None:
    slot = await first_command(server, remote, LOOP, "tests/loop")
    frame = await remote.next_frame(slot, "w1")
    assert frame is not None
    wire.lose_answers = 1
    following = await remote.commit_frame(slot, frame, FrameReport(row_count=2), worker="w1", take_next=True)
    assert following is not None
    assert following.first_index == 2
    stage = await server.call("GET", f"/api/stages/{frame.stage_id}", status=200)
    assert (stage["frames_minted"], stage["rows_done"]) == (2, 2)


async def test_a_server_that_never_saw_the_slot_takes_the_commit_of_its_frame(
    server: Server, wire: Wire, remote: RemoteDispatch, database: Database
) -> None:
    slot = await first_command(server, remote, LOOP, "tests/loop")
    frame = await remote.next_frame(slot, "w1")
    assert frame is not None
    async with running(server.services, server.projections, auth=False) as other:
        wire.target = other.url
        following = await remote.commit_frame(slot, frame, FrameReport(row_count=2), worker="w1", take_next=True)
        assert following is not None
    async with running(server.services, server.projections, auth=False) as third:
        wire.target = third.url
        async with database.transaction(HOME) as connection:
            await connection.execute("UPDATE noetl.command SET lease_until = now() - interval '1 second'")
        report = FrameReport(row_count=2)
        assert await remote.commit_frame(slot, following, report, worker="w1", take_next=True) is None
        with pytest.raises(LeaseLost):
            await remote.next_frame(slot, "w1")


async def test_a_claim_and_a_heartbeat_wait_for_the_server_to_come_back(
    server: Server, wire: Wire, remote: RemoteDispatch
) -> None:
    wire.away = 2
    grant = await first_command(server, remote, TWO_STEPS, "tests/two")
    wire.away = 2
    assert await remote.heartbeat([grant.lease]) == []


async def test_a_claim_returns_nothing_when_the_server_stays_away(wire: Wire, remote: RemoteDispatch) -> None:
    wire.away = 100
    assert await remote.claim("w1", 1, 0.0) == []


async def test_a_report_is_given_up_when_patience_is_over(server: Server, wire: Wire) -> None:
    remote = RemoteDispatch(wire.url, patience_seconds=0.0)
    try:
        first = await first_command(server, remote, TWO_STEPS, "tests/two")
        wire.away = 100
        with pytest.raises(Unavailable):
            await remote.complete(first, done(first), worker="w1", take_next=False)
    finally:
        await remote.close()


async def test_a_token_of_another_role_is_refused_and_not_shown(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    token = bearers["reader"]["Authorization"].removeprefix("Bearer ")
    remote = RemoteDispatch(guarded.url, Secret(token))
    try:
        with pytest.raises(Denied) as refusal:
            await remote.claim("w1", 1, 0.0)
        assert token not in str(refusal.value)
    finally:
        await remote.close()


async def test_a_worker_with_its_token_gets_work(guarded: Server, bearers: dict[str, dict[str, str]]) -> None:
    writer = bearers["writer"]
    await guarded.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, headers=writer, status=201)
    await guarded.call("POST", "/api/execute", {"path": "tests/two"}, headers=writer, status=201)
    remote = RemoteDispatch(guarded.url, Secret(bearers["worker"]["Authorization"].removeprefix("Bearer ")))
    try:
        (grant,) = await remote.claim("w1", 1, 5.0)
        assert (await remote.playbook(grant.catalog_id)).path == "tests/two"
    finally:
        await remote.close()


async def test_slots_that_ask_for_a_playbook_at_the_same_time_read_it_once(
    server: Server, remote: RemoteDispatch
) -> None:
    registered = await server.register(TWO_STEPS)
    found = await asyncio.gather(*(remote.playbook(registered["catalog_id"]) for _ in range(8)))
    assert {id(playbook) for playbook in found} == {id(found[0])}
