"""INV-27. Leases on frames, told to the ledger: whatever workers, clocks and reapers do, one holder at a time, one commit."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from noetl.errors import LeaseLost, VersionConflict
from noetl.ledger.memory import MemoryLedger
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.lease import Lease, grant
from noetl.model.stream import Scope, frame_stream
from noetl.project.folds.registry import built_in_folds
from noetl.project.folds.state import FoldState
from noetl.testing.drafts import Drafts

SCOPE = Scope("default", "default")
LENGTH = timedelta(seconds=30)
WORKERS = ("a", "b", "c")


class LeaseMachine(RuleBasedStateMachine):
    """Three workers share one frame. Each keeps what it believes; the ledger's versions arbitrate."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 5, 16, tzinfo=UTC)
        ids = SnowflakeGenerator(1, lambda: int(self.now.timestamp() * 1000))
        self.drafts = Drafts(SCOPE, ids.mint)
        self.execution, self.stage, self.frame = ids.mint_many(3)
        self.stream = frame_stream(SCOPE, self.execution, self.frame)
        self.ledger = MemoryLedger(lambda: self.now)
        self.lease: Lease | None = None
        self.version = 0
        self.believed: dict[str, tuple[Lease, int]] = {}
        self.committed: list[int] = []
        self.tokens = 0

    def record(self, kind: str, attempt: int, expected: int) -> None:
        meta = {"attempt": attempt, "worker": "w", "row_count": 5}
        draft = self.drafts.frame(self.execution, self.stage, self.frame, kind, meta=meta)
        asyncio.run(self.ledger.append(self.stream, [draft], expected))
        self.version = expected + 1

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: not self.committed)
    @rule(worker=st.sampled_from(WORKERS))
    def claim(self, worker: str) -> None:
        self.tokens += 1
        try:
            lease = grant(self.lease, worker, f"token-{self.tokens}", self.now, LENGTH)
        except LeaseLost:
            assert self.lease is not None
            assert not self.lease.expired(self.now)
            return
        assert lease.attempt == (1 if self.lease is None else self.lease.attempt + 1)
        if self.lease is not None:
            self.record("frame.abandoned", self.lease.attempt, self.version)
        self.record("frame.dispatched", lease.attempt, self.version)
        self.lease = lease
        self.believed[worker] = (lease, self.version)

    @rule(worker=st.sampled_from(WORKERS))
    def heartbeat(self, worker: str) -> None:
        held = self.believed.get(worker)
        if held is None or self.lease is None:
            return
        mine, version = held
        try:
            self.lease.fence(mine.attempt, mine.token, self.now)
        except LeaseLost:
            return
        self.lease = self.lease.renewed(self.now, LENGTH)
        assert self.lease.until == self.now + LENGTH
        self.believed[worker] = (self.lease, version)

    @rule(worker=st.sampled_from(WORKERS))
    def commit(self, worker: str) -> None:
        """A worker that never noticed that its lease is over tries too: only the ledger stops it."""
        held = self.believed.get(worker)
        if held is None:
            return
        mine, version = held
        before = self.version
        stale = self.lease is None or mine.token != self.lease.token or bool(self.committed)
        try:
            self.record("frame.committed", mine.attempt, version)
        except VersionConflict:
            assert stale, "the holder of the frame was refused"
            assert self.version == before
            return
        assert not stale, "a stale holder committed"
        self.committed.append(mine.attempt)

    @invariant()
    def one_commit_at_most_and_the_fold_agrees(self) -> None:
        assert len(self.committed) <= 1
        events = asyncio.run(self.events())
        state = FoldState(built_in_folds(), keep_ended=True)
        state.apply_many(events)
        rows = [folded.row for folded in state.rows("frame")]
        if not events:
            assert rows == []
            return
        assert self.lease is not None
        assert rows[0]["attempts"] == self.lease.attempt
        assert rows[0]["status"] == ("COMMITTED" if self.committed else "DISPATCHED")
        assert [event.stream_version for event in events] == list(range(1, self.version + 1))

    async def events(self) -> list[Event]:
        return [event async for event in self.ledger.read(self.stream)]


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLeaseMachine = LeaseMachine.TestCase
