"""Two ledgers, one history: whatever is appended, memory and PostgreSQL answer alike and number alike."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from noetl.errors import Conflict, NoetlError
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.event import Appended, Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.testing.contracts.ledger.event_lists import read_shard
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

IDS = SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000)
WHERE = {"tenant": st.integers(0, 1), "place": st.integers(0, 2)}
EXAMPLES = 60
CHOICE = st.sampled_from(["any", "any", "right", "next", "new"])
ONCE = st.sampled_from(["loop.done", "loop.fanin.completed"])

Sent = tuple[Draft, ...]


class Pair:
    """Both ledgers and the loop they run in."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.memory = MemoryLedger()
        self.database = self.runner.run(_opened(url))
        self.postgres = PostgresLedger(self.database)
        self.numbers = itertools.count()

    def both(self, *appends: tuple[Sent, int | None]) -> list[Any]:
        """Send the same appends, all at once, to both; return the answers after comparing them."""
        mine, theirs = (self.runner.run(_answers(ledger, appends)) for ledger in (self.memory, self.postgres))
        assert mine == theirs
        return mine

    def compare_since(self, start: Mark) -> None:
        """Check that both hold the same events at the same dense positions."""
        for shard in range(SHARD_COUNT):
            first = start.positions[shard] + 1
            mine, theirs = (
                [
                    (event.position, event.stream, event.stream_version, event.event_id)
                    for event in self.runner.run(read_shard(ledger, shard, first))
                ]
                for ledger in (self.memory, self.postgres)
            )
            assert mine == theirs
            assert [event[0] for event in theirs] == list(range(first, first + len(theirs)))
        assert self.runner.run(self.memory.head()) == self.runner.run(self.postgres.head())

    def close(self) -> None:
        self.runner.run(self.postgres.close())
        self.runner.run(self.database.close())
        self.runner.close()


async def _opened(url: str) -> Database:
    return Database(url, as_roles=True)


async def _answers(ledger: Ledger, appends: Sequence[tuple[Sent, int | None]]) -> list[Any]:
    tries = (ledger.append(sent[0].stream, sent, expected) for sent, expected in appends)
    answers = await asyncio.gather(*tries, return_exceptions=True)
    for answer in answers:
        assert isinstance(answer, Appended | NoetlError), repr(answer)
    if len(appends) > 1:
        # An append that loses in two ways at once may be told either: which one depends on who shares its group.
        return [Conflict if isinstance(answer, Conflict) else _kind(answer) for answer in answers]
    return [_kind(answer) for answer in answers]


def _kind(answer: Any) -> Any:
    return answer if isinstance(answer, Appended) else type(answer)


class LedgerMachine(RuleBasedStateMachine):
    """Appends of two tenants to a few streams; each run of the machine uses tenants nobody used before."""

    pair: Pair
    keyed = Bundle("keyed")
    plain = Bundle("plain")

    @initialize()
    def begin(self) -> None:
        number = next(self.pair.numbers)
        self.start = self.pair.runner.run(self.pair.memory.head())
        self.tenants = [Drafts(Scope(f"{name}{number}", "care"), IDS.mint) for name in ("acme", "globex")]
        self.ids = [[IDS.mint() for _ in range(3)] for _ in self.tenants]
        self.versions: dict[object, int] = {}

    def draft(self, tenant: int, place: int, key: str | None) -> Draft:
        drafts, (run, first, second) = self.tenants[tenant], self.ids[tenant]
        if place == 0:
            return drafts.business("dataset/x", run, idempotency_key=key)
        return drafts.loop_item(run, first if place == 1 else second, 0, idempotency_key=key)

    def expected(self, sent: Sent, choice: str) -> int | None:
        version = self.versions.get(sent[0].stream, 0)
        return {"any": None, "right": version, "next": version + 1, "new": 0}[choice]

    def send(self, *appends: tuple[Sent, int | None]) -> None:
        for (sent, _), answer in zip(appends, self.pair.both(*appends), strict=True):
            if isinstance(answer, Appended):
                stream = sent[0].stream
                self.versions[stream] = max(self.versions.get(stream, 0), answer.last_version)

    @rule(target=plain, **WHERE, count=st.integers(1, 3), choice=CHOICE)
    def append(self, tenant: int, place: int, count: int, choice: str) -> Sent:
        sent = tuple(self.draft(tenant, place, None) for _ in range(count))
        self.send((sent, self.expected(sent, choice)))
        return sent

    @rule(
        target=keyed,
        **WHERE,
        keys=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True),
        choice=CHOICE,
    )
    def append_with_keys(self, tenant: int, place: int, keys: list[str], choice: str) -> Sent:
        sent = tuple(self.draft(tenant, place, key) for key in keys)
        self.send((sent, self.expected(sent, choice)))
        return sent

    @rule(sent=keyed, choice=CHOICE, status=st.sampled_from([None, None, "other"]), count=st.integers(1, 3))
    def repeat_keys(self, sent: Sent, choice: str, status: str | None, count: int) -> None:
        drafts = self.tenants[0]
        again = tuple(drafts.again(draft, status=status) for draft in sent[:count])
        self.send((again, self.expected(again, choice)))

    @rule(sent=plain, choice=CHOICE)
    def send_the_same_events_again(self, sent: Sent, choice: str) -> None:
        self.send((sent, self.expected(sent, choice)))

    @rule(sent=plain, tenant=st.integers(0, 1))
    def send_old_and_new_events_together(self, sent: Sent, tenant: int) -> None:
        drafts = self.tenants[tenant]
        if (drafts.scope, 1) == (sent[0].stream.scope, len(sent)):
            self.send(((*sent, drafts.again(sent[0])), None))

    @rule(tenant=st.integers(0, 1), loop=st.integers(1, 2), kind=ONCE, choice=CHOICE)
    def record_a_fact_that_stands_once(self, tenant: int, loop: int, kind: str, choice: str) -> None:
        sent = (self.tenants[tenant].loop(self.ids[tenant][0], self.ids[tenant][loop], kind),)
        self.send((sent, self.expected(sent, choice)))

    @rule(
        tenant=st.integers(0, 1),
        wanted=st.lists(
            st.tuples(st.integers(0, 2), CHOICE, st.sampled_from([None, None, "a", "b", "loop.done"])),
            min_size=2,
            max_size=6,
        ),
    )
    def append_at_once(self, tenant: int, wanted: list[tuple[int, str, str | None]]) -> None:
        appends = []
        for place, choice, extra in wanted:
            if extra == "loop.done":
                sent: Sent = (self.tenants[tenant].loop(self.ids[tenant][0], self.ids[tenant][1], extra),)
            else:
                sent = (self.draft(tenant, place, extra),)
            appends.append((sent, self.expected(sent, choice)))
        self.send(*appends)

    def teardown(self) -> None:
        if hasattr(self, "start"):
            self.pair.compare_since(self.start)


@pytest.fixture
def pair(owner_url: str) -> Iterator[Pair]:
    pair = Pair(owner_url)
    yield pair
    pair.close()


def test_memory_and_postgresql_give_the_same_answers_to_any_history(pair: Pair) -> None:
    machine = type("BoundMachine", (LedgerMachine,), {"pair": pair})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
