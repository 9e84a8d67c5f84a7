"""Decided events that nobody publishes: `noetl stream status` shows them by shard, and `noetl verify` waits and fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.acceptance.hello_loop import hello_loop
from tests.acceptance.mirroring import mirror_events

from noetl.cli.ledger import verify
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.write_path import WritePath, WritePathChange
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import WRITES
from noetl.kernel.stream.relay.pending_events import WaitingEvents
from noetl.kernel.stream.write_path.backlog import still_waiting, unpublished
from noetl.testing.engines.write_paths import write_path_stream
from noetl.testing.samples.projected_ledger import HOME, a_run

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def waiting(noetl: Noetl, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How many events wait by shard, in a database whose writes go through a stream that nobody fills."""

    async def to_the_stream() -> None:
        database = Database(owner_url)
        await WritePathChange(database, WritePath(database)).to("stream")
        await database.close()

    asyncio.run(to_the_stream())
    (tmp_path / "hello.yaml").write_text(hello_loop(3))
    assert noetl("catalog", "register", "hello.yaml")[0] == 0
    monkeypatch.setattr(verify, "WRITES_SECONDS", 0.1)
    with psycopg.connect(owner_url) as owner:
        owner.execute("SET ROLE noetl_relay")
        rows = owner.execute("SELECT shard, count(*) FROM noetl.pending_event GROUP BY shard").fetchall()
    assert rows
    return dict(rows)


@pytest.mark.parametrize("nats", [False, True], ids=["without NATS", "with NATS"])
def test_they_are_shown_by_shard_and_no_verification_passes_over_them(
    noetl: Noetl,
    waiting: dict[int, int],
    nats: bool,
    nats_url: str,
    stream_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = sum(waiting.values())
    if nats:
        mirror_events(monkeypatch, nats_url, stream_prefix)
    code, shown, errors = noetl("stream", "status", "--json")
    assert code == 0, errors
    writes = json.loads(shown)["writes"]
    assert (writes["write_path"], writes["unpublished_events"], writes["state"]) == ("stream", events, None)
    told = {one["shard"]: one["unpublished_events"] for one in writes["shards"]}
    assert told == {shard: waiting.get(shard, 0) for shard in range(16)}
    assert {one["shard"] for one in writes["shards"] if one["unpublished_since"]} == waiting.keys()

    lines = noetl("stream", "status")[1].splitlines()
    assert f"{events} decided events wait to be published; no relay runs, start one with `noetl relay`" in lines[-1]
    if nats:
        assert f"{stream_prefix}_writes is not there yet" in lines[-1]
    else:
        assert "the write path is stream, and the settings name no NATS server" in lines[-1]
        assert "needs no relay" not in "\n".join(lines)

    code, shown, _ = noetl("verify")
    assert code == 1
    assert f"{events} decided events wait and are not in the ledger" in shown
    assert "Nothing differs." not in shown
    monkeypatch.setenv("NOETL_EVENT_STORE__DISTRIBUTION_BACKEND", "none")
    code, _, errors = noetl("stream", "status")
    assert (code, f"the write path is stream, and {events} decided events wait" in errors) == (2, True)


def test_what_a_relay_publishes_and_a_materializer_writes_is_no_longer_told(
    noetl: Noetl, waiting: dict[int, int], nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_events(monkeypatch, nats_url, stream_prefix)
    assert noetl("run", "hello.yaml", "-q")[0] == 0
    code, shown, _ = noetl("stream", "status", "--json")
    writes = json.loads(shown)["writes"]
    assert (code, writes["unpublished_events"], writes["waiting_messages"]) == (0, 0, 0)
    assert "wait" not in noetl("stream", "status")[1].splitlines()[-1]
    code, shown, errors = noetl("verify")
    assert code == 0, shown + errors


async def test_what_is_on_its_way_is_waited_for(database: Database, ledger: PostgresLedger) -> None:
    stream = MemoryStream(WRITES)
    await WritePathChange(database, ledger.way).to("stream")
    drafts = a_run(HOME, 1)
    async with ledger.decision(HOME) as decision:
        for draft in drafts:
            await decision.append(draft.stream, [draft])
    assert await still_waiting(database, 0.0) == len(drafts)
    created = (await stream.open()).created
    for making in (created, None):
        assert sum(one.events for one in (await unpublished(database, stream.name, making)).values()) == len(drafts)
    leases = ShardLeases(database, "relay", "publishing")
    await leases.start(lambda _: None)
    held = {shard: token for shard in leases.held if (token := leases.proof(shard)) is not None}
    assert await WaitingEvents(database, stream).publish(held) == len(drafts)
    await leases.stop()
    # What is published waits in the stream, and is not in the ledger all the same.
    assert await unpublished(database, stream.name, created) == {}
    assert await still_waiting(database, 0.0) == len(drafts)
    looking = asyncio.create_task(still_waiting(database, 30.0))
    async with write_path_stream(database, ledger, stream):
        assert await looking == 0
    assert await unpublished(database, stream.name, None) == {}
