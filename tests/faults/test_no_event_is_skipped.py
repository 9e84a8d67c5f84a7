"""INV-01: no reader ever passes a position that appears later. INV-02: positions of a shard have no gaps.

A writer in another process is held, slowed or killed at every point before and after the shard head, while sixteen
others append to the same shard and a reader follows it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import Scope, Stream, execution_stream
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.fault]

SCOPE = Scope("default", "default")
SHARD = 5
IDLE_SECONDS = 1.0
ROUNDS = 25
POINTS = ("append.before_begin", "append.before_heads", "append.after_heads", "append.after_commit")
WRITER = Path(__file__).with_name("held_writer.py")


def streams_of_shard(count: int, mint: SnowflakeGenerator) -> list[Stream]:
    """Find executions whose events all go to the one shard under test."""
    found: list[Stream] = []
    while len(found) < count:
        stream = execution_stream(SCOPE, mint.mint())
        if stream.shard == SHARD:
            found.append(stream)
    return found


@contextmanager
def held_writer(url: str, stream: Stream, fault: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the writer with a fault armed; give it and the descriptor on which it says that it got there."""
    told, tell = os.pipe()
    environment = {**os.environ, "NOETL_FAULT": fault, "NOETL_FAULT_FD": str(tell)}
    arguments = [sys.executable, str(WRITER), url, stream.stream_id, "1", str(IDLE_SECONDS)]
    process = subprocess.Popen(
        arguments, env=environment, pass_fds=[tell], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(tell)
    try:
        yield process, told
    finally:
        os.close(told)
        if process.poll() is None:
            process.kill()
        process.communicate()


class Reader:
    """Follows the shard and keeps what it saw, in the order it saw it."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self.seen: list[Event] = []
        self._ledger = ledger
        self._grown = asyncio.Condition()

    async def follow(self) -> None:
        async for batch in self._ledger.subscribe(Mark.zero(), shards=[SHARD]):
            async with self._grown:
                self.seen += batch
                self._grown.notify_all()

    async def reach(self, position: int) -> None:
        async with asyncio.timeout(30), self._grown:
            await self._grown.wait_for(lambda: bool(self.seen) and self.seen[-1].position >= position)


async def write_rounds(ledger: PostgresLedger, stream: Stream, drafts: Drafts, slowest: list[float]) -> list[int]:
    """Append one event at a time, by group commit and by decision in turn; return the acknowledged ids."""
    assert stream.execution_id is not None
    acknowledged = []
    for number in range(ROUNDS):
        draft = drafts.execution(stream.execution_id, "step.entered", node_name=f"other-{number}")
        began = time.monotonic()
        if number % 5 == 4:
            async with ledger.decision(SCOPE) as decision:
                await decision.append(stream, [draft])
        else:
            await ledger.append(stream, [draft])
        slowest.append(time.monotonic() - began)
        acknowledged.append(draft.event_id)
    return acknowledged


@pytest.mark.parametrize("action", ["held until the server ends it", "slow", "killed"])
@pytest.mark.parametrize("point", POINTS)
async def test_no_event_is_ever_skipped_whatever_happens_to_a_writer(owner_url: str, point: str, action: str) -> None:
    """INV-01, INV-02, INV-03 (a paused client blocks its shard no longer than the time-out)."""
    mint = SnowflakeGenerator(7, lambda: time.time_ns() // 1_000_000)
    drafts = Drafts(SCOPE, mint.mint)
    held, *others = streams_of_shard(17, mint)
    # Only the writer that is held back has the short time-out: on a busy machine the others may be slow, too.
    database = Database(owner_url, as_roles=True, pool_max=24)
    ledger = PostgresLedger(database, poll_seconds=0.2)
    reader = Reader(ledger)
    following = asyncio.create_task(reader.follow())
    slowest: list[float] = []
    fault = f"{point}={'kill' if action == 'killed' else 'pause'}"
    with held_writer(owner_url, held, fault) as (process, told):
        line = await asyncio.to_thread(os.read, told, 100)
        assert line.decode().strip() == point
        # It says so before it stops itself, and a signal to go on that comes in between would be lost.
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        writers = [asyncio.create_task(write_rounds(ledger, stream, drafts, slowest)) for stream in others]
        if action == "slow":
            if point != "append.after_heads":
                await reader.reach(ROUNDS)
            process.send_signal(signal.SIGCONT)
        acknowledged = {event_id for done in await asyncio.gather(*writers) for event_id in done}
        if action == "held until the server ends it":
            if point in ("append.before_heads", "append.after_heads"):
                await transaction_ended(owner_url)
            process.send_signal(signal.SIGCONT)
        out, _ = await asyncio.to_thread(process.communicate)
    acknowledged |= {int(text) for text in out.split()}
    head = (await ledger.head()).positions[SHARD]
    await reader.reach(head)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    stored = [event async for event in ledger.read_shard(SHARD)]
    await ledger.close()
    await database.close()

    assert [event.position for event in reader.seen] == list(range(1, head + 1))
    assert [event.event_id for event in reader.seen] == [event.event_id for event in stored]
    ids = [event.event_id for event in stored]
    assert len(set(ids)) == len(ids)
    assert acknowledged <= set(ids)
    assert len(acknowledged) >= 16 * ROUNDS
    assert len(ids) - len(acknowledged) <= 1, "only the writer's one unacknowledged event may stand besides"
    held_stands = any(event.execution_id == held.execution_id for event in stored)
    assert held_stands == must_stand(point, action)
    # The wait for the server to end the paused session, and room for a busy machine; without the time-out the
    # writers would wait for as long as the client is paused.
    assert max(slowest) < IDLE_SECONDS + 10


def must_stand(point: str, action: str) -> bool:
    """Tell whether the held writer's event is in the ledger in the end."""
    if point == "append.after_commit":
        return True
    if action == "killed":
        return False
    return action == "slow" or point == "append.before_begin"


async def transaction_ended(owner_url: str) -> None:
    """Wait until the paused writer's transaction, which has looked at this table, is over."""
    connection = await asyncpg.connect(owner_url, timeout=10)
    async with connection.transaction():
        await connection.execute("LOCK TABLE noetl.shard IN ACCESS EXCLUSIVE MODE")
    await connection.close()


async def test_a_cursor_by_id_would_skip_what_positions_do_not(ledger: PostgresLedger) -> None:
    """Shows the hazard that positions remove: an id minted first may be committed last."""
    mint = SnowflakeGenerator(7, lambda: time.time_ns() // 1_000_000)
    drafts = Drafts(SCOPE, mint.mint)
    first, second = streams_of_shard(2, mint)
    assert first.execution_id is not None
    assert second.execution_id is not None
    early = drafts.execution(first.execution_id)
    late = drafts.execution(second.execution_id)
    await ledger.append(second, [late])
    await ledger.append(first, [early])
    events = [event async for event in ledger.read_shard(SHARD, scope=SCOPE)]
    assert [event.event_id for event in events] == [late.event_id, early.event_id]
    assert early.event_id < late.event_id
    assert [event.position for event in events] == [1, 2]
