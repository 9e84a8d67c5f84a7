"""INV-27. Leases, told to the rules and to PostgreSQL: whatever holders, clocks and reapers do, both agree on who holds what."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.properties import leased_rows
from tests.properties.leased_rows import LEASED, SECONDS, LeasedRow, together

from noetl.errors import LeaseLost
from noetl.kernel.leases.kinds import KINDS
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model import lease as rules
from noetl.model.lease import Proof

pytestmark = pytest.mark.service

EXAMPLES = 15
STEPS = 25
LENGTH = timedelta(seconds=SECONDS)
SLACK = 200.0
"""Seconds that a busy machine may take for one run; less than half of what a lease or its extension lasts."""
HOLDERS = ("ann", "bob", "cy")
WHICH = st.sampled_from([0, 0, 0, 1, 2])
FORGERIES = {"former attempt": -1, "next attempt": 1, "token": 0}
"""What is wrong with a proof, and by how much its attempt is."""


class World:
    """A database, the ledger in it and the loop they run in."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.database = self.run(self._opened(url))
        self.ledger = PostgresLedger(self.database)
        self.numbers = itertools.count()

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    async def _opened(self, url: str) -> Database:
        return Database(url, as_roles=True)

    def close(self) -> None:
        self.run(self.ledger.close())
        self.run(self.database.close())
        self.runner.close()


class LeaseMachine(RuleBasedStateMachine):
    """Holders that come, go on and come back late. The rules say what has to happen; the database must do just that."""

    world: World
    row: LeasedRow

    @initialize()
    def begin(self) -> None:
        self.run(self.row.begin(next(self.world.numbers)))
        self.now = datetime(2026, 5, 16, tzinfo=UTC)
        # A row that stays goes on counting where others left it.
        self.model = rules.LeasedRow(self.standing()[0])
        self.first = self.model.attempt
        self.grants: list[Any] = []
        self.given_back: set[int] = set()

    def run(self, work: Any) -> Any:
        return self.world.run(work)

    def standing(self) -> tuple[int, str | None, str | None, float | None]:
        """Return attempt, token, holder and how many seconds are left, as the database has them."""
        kind = self.row.kind
        left = f"extract(epoch FROM {kind.until} - clock_timestamp())::float8"
        found = self.run(self.row.rows(f"{kind.attempt}, {kind.token}::text, {kind.holder or 'NULL'}, {left}"))
        return tuple(found[0]) if found else (0, None, None, None)

    def whole(self) -> Any:
        """Return all that must not change when somebody is refused."""
        scope = self.row.scope
        return self.run(self.row.rows("known::text")), self.run(_events(self.world.database, scope))

    def expects(self, step: Callable[[], rules.LeasedRow]) -> rules.LeasedRow | None:
        """Return the row after a step, or None where the rules refuse it."""
        try:
            return step()
        except LeaseLost:
            return None

    @property
    def can_be_claimed(self) -> bool:
        lease = self.model.lease
        return lease is None or (lease.expired(self.now) and not self.row.reaped)

    @rule(holder=st.sampled_from(HOLDERS))
    def claim(self, holder: str) -> None:
        if self.model.attempt - self.first < self.row.most:
            self.claimed([holder])

    @rule(holders=st.permutations(HOLDERS))
    def claim_together(self, holders: list[str]) -> None:
        if self.model.attempt - self.first < self.row.most:
            self.claimed(holders[:2])

    def claimed(self, holders: list[str]) -> None:
        lease = self.model.lease
        if lease is not None and lease.expired(self.now) and self.row.kind is leased_rows.SLOT:
            return  # to look is to take back, which is another rule
        before = self.whole()
        granted = [(one, got) for one, got in zip(holders, self.run(together(self.row, *holders)), strict=True) if got]
        if not self.can_be_claimed:
            assert granted == []
            assert self.whole() == before
            return
        ((holder, grant),) = granted
        proof = self.row.proof(grant)
        assert proof.token not in {self.row.proof(one).token for one in self.grants}
        self.model = self.model.claimed(holder, proof.token, self.now, LENGTH)
        assert proof.attempt == self.model.attempt
        self.grants.append(grant)

    def shown(self, which: int, forged: str | None = None) -> tuple[Any, Proof]:
        """Return what somebody shows: a grant of now or earlier, or one that was never given."""
        grant = self.grants[-1 - which % len(self.grants)]
        proof = self.row.proof(grant)
        if forged is not None:
            attempt = proof.attempt + FORGERIES[forged]
            token = str(uuid.uuid4()) if forged == "token" else proof.token
            grant, proof = self.row.forged(grant, attempt, token), Proof(proof.key, attempt, token)
        return grant, proof

    def told(self, after: rules.LeasedRow | None, work: Any, *, repeated: bool = False) -> None:
        """Do what the rules allow or refuse; who is refused changes nothing."""
        before = None if after else self.whole()
        done = self.run(work)
        if after is None:
            assert not done or repeated, "who holds nothing was let through"
            assert self.whole() == before
        else:
            assert done, "the holder was refused"
            self.model = after

    @precondition(lambda self: self.grants)
    @rule(which=WHICH, early=st.booleans())
    def renew(self, which: int, early: bool) -> None:
        if early:
            self.last_longer()
        grant, proof = self.shown(which)
        after = self.expects(lambda: self.model.renewed(proof.attempt, proof.token, self.now, LENGTH))
        self.told(after, self.row.renew(grant))

    @precondition(lambda self: self.grants and self.row.fenced)
    @rule(which=WHICH)
    def write(self, which: int) -> None:
        grant, proof = self.shown(which)

        def written() -> rules.LeasedRow:
            self.model.fence(proof.attempt, proof.token, self.now)
            return self.model

        self.told(self.expects(written), self.row.write(grant))

    @precondition(lambda self: self.grants)
    @rule(which=WHICH)
    def give_back(self, which: int) -> None:
        grant, proof = self.shown(which)
        late = self.row.late
        after = self.expects(lambda: self.model.given_back(proof.attempt, proof.token, self.now, late=late))
        self.told(after, self.row.give_back(grant), repeated=self.row.repeats and proof.attempt in self.given_back)
        if after is not None:
            self.given_back.add(proof.attempt)

    @precondition(lambda self: self.row.reaped and self.model.lease)
    @rule()
    def reap(self) -> None:
        before = self.whole()
        self.run(self.row.reap())
        after = self.expects(lambda: self.model.reaped(self.now))
        if after is None:
            assert self.whole() == before
        self.model = after or self.model

    @precondition(lambda self: self.model.lease)
    @rule()
    def time_passes(self) -> None:
        """The lease runs out; those who know of it believe in it as before."""
        lease = self.model.lease
        assert lease is not None
        if not lease.expired(self.now):
            *_, left = self.standing()
            assert left is not None
            self.run(self.row.move_end(-left - 1))
            self.now = lease.until

    def last_longer(self) -> None:
        """Let the lease last longer than a renewal would make it."""
        lease = self.model.lease
        if lease is not None and not lease.expired(self.now) and lease.until - self.now <= LENGTH:
            self.run(self.row.move_end(SECONDS))
            self.model = rules.LeasedRow(self.model.attempt, lease.renewed(lease.until, LENGTH))

    @precondition(lambda self: self.model.lease)
    @rule()
    def nobody_passes_for_the_holder(self) -> None:
        """Neither the attempt nor the token alone is enough, for anything."""
        for forged in FORGERIES:
            grant, proof = self.shown(0, forged)
            self.told(None, self.row.renew(grant))
            if self.row.fenced:
                self.told(None, self.row.write(grant))
            repeated = self.row.repeats and proof.attempt in self.given_back
            self.told(None, self.row.give_back(grant), repeated=repeated)

    @invariant()
    def both_agree(self) -> None:
        attempt, token, holder, left = self.standing()
        lease = self.model.lease
        assert attempt == self.model.attempt
        assert token == (lease and lease.token)
        if lease is None:
            return
        assert left is not None
        assert holder == (None if self.row.kind.holder is None else self.row.recorded(lease.holder))
        assert (left <= 0) == lease.expired(self.now)
        if left > 0:
            assert abs((lease.until - self.now).total_seconds() - left) < SLACK

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.run(self.row.end())


async def _events(database: Database, scope: Any) -> int:
    async with database.transaction(scope) as connection:
        return int(await connection.fetchval("SELECT count(*) FROM noetl.event"))


@pytest.fixture
def world(owner_url: str) -> Iterator[World]:
    world = World(owner_url)
    yield world
    world.close()


@pytest.mark.parametrize("leased", LEASED, ids=lambda leased: leased.kind.table)
def test_the_database_keeps_the_rules_of_leases(world: World, leased: type[LeasedRow], tmp_path: Path) -> None:
    async def made() -> LeasedRow:
        return leased(world.database, world.ledger, tmp_path)

    machine = type("BoundMachine", (LeaseMachine,), {"world": world, "row": world.run(made())})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_every_kind_is_among_them() -> None:
    assert {leased.kind for leased in LEASED} == set(KINDS)
