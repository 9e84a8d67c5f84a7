"""Every write answers with a token, and a read that carries it sees the write, whichever way events take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.api.conftest import Serve
from tests.integration.api.serving import HOME, TWO_STEPS, Server

from noetl.errors import InputError, Unavailable
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import Notifier
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import WRITES, Message
from noetl.kernel.stream.write_path.materializer import Materializer
from noetl.model.mark import ReadToken, VersionToken, execution_token, parse_read_token
from noetl.testing.engines.short_leases import until
from noetl.testing.engines.write_paths import write_path_stream
from noetl.testing.samples.drafts import Drafts

_OWN = """
SELECT shard, position, event_id, row_to_json(p)::text AS body FROM noetl.pending_event AS p
WHERE stream_id = $1 AND stream_version = $2
"""


@pytest.fixture
async def hasty(serve: Serve) -> AsyncIterator[Server]:
    """A server whose reads wait for a moment only."""
    async with serve(auth=False, read_token_seconds=0.3) as server:
        yield server


async def written(server: Server) -> dict[str, tuple[str, str]]:
    """Write in all ways there are; return the token of each and an address that shows what it wrote."""
    registered = await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, status=201)
    body = {"path": "tests/two"}
    started = await server.call("POST", "/api/execute", body, status=201)
    (one,) = (await server.call("POST", "/api/execute/batch", {"executions": [body]}, status=200))["results"]
    name = one["started"]["execution_id"]
    finalized = await server.call("POST", f"/api/executions/{name}/finalize", status=200)
    cancelled = await server.call("POST", f"/api/executions/{name}/cancel", status=200)
    rerun = await server.call("POST", f"/api/executions/{name}/rerun", status=201)
    version = {"path": "tests/two", "version": 1}
    removed = await server.call("POST", "/api/catalog/delete", version, status=200)
    restored = await server.call("POST", "/api/catalog/restore", version, status=200)

    def replay(execution_id: str) -> str:
        return f"/api/replay/state?execution_id={execution_id}"

    return {
        "register": (registered["read_token"], "/api/replay/state"),
        "execute": (started["read_token"], replay(started["execution_id"])),
        "batch": (one["started"]["read_token"], replay(name)),
        "finalize": (finalized["read_token"], replay(name)),
        "cancel": (cancelled["read_token"], replay(name)),
        "rerun": (rerun["read_token"], replay(rerun["execution_id"])),
        "delete": (removed["read_token"], "/api/replay/state"),
        "restore": (restored["read_token"], "/api/replay/state"),
    }


async def test_a_token_of_every_write_makes_a_replay_wait_for_it_and_no_longer_than_its_bound(
    hasty: Server, database: Database, ledger: PostgresLedger
) -> None:
    """INV-114."""
    for token, place in (await written(hasty)).values():
        await hasty.call("GET", place, headers={"Noetl-Read-Token": token}, status=200)
    await WritePathChange(database, ledger.way).to("stream")
    await hasty.call("POST", "/api/catalog/delete", {"path": "tests/two", "version": 1}, status=200)
    waiting = await written(hasty)
    for token, place in waiting.values():
        problem = await hasty.call("GET", place, headers={"Noetl-Read-Token": token}, status=503)
        assert "is accepted, and 0.3 s later not in the ledger yet" in problem["detail"]
    async with write_path_stream(database, ledger, MemoryStream(WRITES)):
        await ledger.settled()
        for token, place in waiting.values():
            await hasty.call("GET", place, headers={"Noetl-Read-Token": token}, status=200)


async def test_a_cancellation_is_seen_by_the_replay_that_carries_its_token(
    server: Server, database: Database, ledger: PostgresLedger
) -> None:
    """INV-114."""
    await server.register(TWO_STEPS)
    async with write_path_stream(database, ledger, MemoryStream(WRITES)):
        for _ in range(10):
            name = await server.start("tests/two")
            token = (await server.call("POST", f"/api/executions/{name}/cancel", status=200))["read_token"]
            place = f"/api/replay/state?execution_id={name}"
            state = await server.call("GET", place, headers={"Noetl-Read-Token": token}, status=200)
            assert state["rows"]["execution"][0]["row"]["status"] == "CANCELLED"


async def test_an_execution_whose_events_wait_is_never_said_not_to_be_there(
    hasty: Server, server: Server, database: Database, ledger: PostgresLedger
) -> None:
    await server.register(TWO_STEPS)
    await WritePathChange(database, ledger.way).to("stream")
    name = await server.start("tests/two")
    place = f"/api/replay/state?execution_id={name}"
    assert (await hasty.call("GET", place, status=503))["code"] == "unavailable"
    asked = asyncio.create_task(server.call("GET", place, status=200))
    async with write_path_stream(database, ledger, MemoryStream(WRITES)):
        state = await asked
    assert state["rows"]["execution"][0]["row"]["status"] == "RUNNING"
    await server.call("GET", "/api/replay/state?execution_id=1234567890123", status=404)


async def test_a_version_is_covered_with_all_that_was_recorded_together_with_it(
    server: Server, database: Database, ledger: PostgresLedger
) -> None:
    """INV-114."""
    await WritePathChange(database, ledger.way).to("stream")
    mint = server.services.mint
    drafts, execution_id = Drafts(HOME, mint), mint()
    together = [drafts.execution(execution_id), drafts.business(f"execution/{execution_id}/business/x", execution_id)]
    await ledger.transact(Transition(tuple(Append(one.stream, [one]) for one in together)))
    token = execution_token(execution_id, 1)
    async with database.transaction(None, "relay") as connection:
        own = await connection.fetchrow(_OWN, token.stream_id, token.version)
        behind = "SELECT count(*) FROM noetl.pending_event WHERE position > $1"
        assert await connection.fetchval(behind, own["position"]) > 0
    stream, leases, notifier = MemoryStream(WRITES), ShardLeases(database, "materializer", "one"), Notifier(database)
    materializer = Materializer(database, stream, leases.proof, notifier.touch)
    await stream.open()
    await leases.start(materializer.hold)
    await stream.publish([Message("default", token.execution_id, own["shard"], "own", own["body"].encode())])

    async def stands() -> bool:
        async with database.transaction(HOME) as connection:
            query = "SELECT EXISTS (SELECT FROM noetl.event WHERE event_id = $1)"
            return bool(await connection.fetchval(query, own["event_id"]))

    await until(stands, "that version in the ledger")
    await materializer.stop()
    await leases.stop()
    await notifier.close()
    with pytest.raises(Unavailable):
        await ledger.covered(token, HOME, 0.3)
    async with write_path_stream(database, ledger, MemoryStream(WRITES)):
        await ledger.covered(token, HOME, 10.0)


@pytest.mark.parametrize(
    "token",
    [
        ReadToken(2**64 - 1, 1, 0),
        ReadToken(1, 2**63, 0),
        VersionToken(2**63, "execution/1", 1),
        VersionToken(1, "execution/\x00", 1),
        "nrt3.AAAA",
        "",
    ],
)
def test_a_token_that_no_write_gave_is_refused_before_anybody_waits_for_it(token: object) -> None:
    with pytest.raises(InputError, match="not a read token"):
        parse_read_token(str(token))
