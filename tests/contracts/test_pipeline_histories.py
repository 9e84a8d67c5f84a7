"""Whatever is sent, in whatever order and however much of it is refused, rows of pipelines are what the fold says."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.model.stream import Scope
from noetl.testing.samples.executions import joined, token
from noetl.testing.samples.pipelines import Piped

pytestmark = pytest.mark.service

TASKS = st.sampled_from("ab")
VERSIONS = st.integers(1, 3)
MOVES = st.sampled_from(["dag.ready", "dag.build_failed", "dag.activated", "dag.rolled_back"])
KEYS = st.sampled_from(["all", "day=1", "day=1|2/city=%20"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aü|'", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab.", max_size=2), inner, max_size=2),
    max_leaves=4,
)

Step = tuple[Any, ...]
steps = st.one_of(
    st.tuples(st.just("deploy"), VERSIONS, st.sampled_from([None, "orders"])),
    st.tuples(st.just("move"), MOVES, VERSIONS, st.none() | VERSIONS),
    st.tuples(st.just("create"), TASKS, st.booleans()),
    st.tuples(st.just("claim"), TASKS, st.integers(1, 3), st.sampled_from([-1.0, 60.0]), st.none() | st.integers(1, 2)),
    st.tuples(st.just("start"), TASKS),
    st.tuples(st.just("free"), TASKS, st.sampled_from(["task.attempt_failed", "task.abandoned"]), st.floats(-5, 5)),
    st.tuples(
        st.just("end"), TASKS, st.sampled_from(["task.completed", "task.failed", "task.cancelled"]), KEYS, VERSIONS
    ),
    st.tuples(st.just("skip"), TASKS, TASKS),
    st.tuples(st.just("cancel"), TASKS),
    st.tuples(st.just("retry"), TASKS, st.integers(0, 2)),
    st.tuples(st.just("commit"), KEYS, st.sampled_from(["partition.committed", "partition.dropped"])),
    st.tuples(st.just("schema"), st.sampled_from(["first", "evolved"])),
    st.tuples(st.just("state"), st.sampled_from(["k", "l"]), VALUES),
)
"""Facts, legal or not at their place."""
histories = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=8)
"""Changes that are sent one after another, each list of them at once."""


def change(dag: Piped, step: Step) -> Transition:
    match step:
        case ("deploy", number, name):
            return dag.deployed(number, name=name)
        case ("move", kind, number, previous):
            return dag.moved(kind, number, previous, error="why" if kind == "dag.build_failed" else None)
        case ("create", name, True):
            ref = dag.drafts.payload("ef" * 32)
            return dag.created(name, context={"inputs": [{"alias": "o"}]}, payload_ref=ref)
        case ("create", name, False):
            return dag.created(name)
        case ("claim", name, attempt, seconds, room):
            claim = dag.claimed(name, token(), attempt, seconds, room)
            return claim if room else Transition(claim.appends)
        case ("start", name):
            return dag.task(name, "task.started", meta={"application_id": "x", "job_tag": None})
        case ("free", name, kind, delay):
            return dag.task(name, kind, meta={"delay_seconds": delay}, error=None if delay < 0 else "late")
        case ("end", name, kind, key, version):
            done = {"cursors": [dag.cursor(key, version)], "outputs": [{"output": 0, "version": version}]}
            return dag.task(name, kind, context=done, payload_ref=dag.drafts.payload() if version == 1 else None)
        case ("skip", name, other):
            return dag.task(name, "task.skipped", meta={"as_task": dag.task_id(other)})
        case ("cancel", name):
            return dag.task(name, "task.cancel_requested")
        case ("retry", name, extra):
            return dag.task(name, "task.retried", meta={"extra_attempts": extra})
        case ("commit", key, kind):
            return dag.partition(key, kind)
        case ("schema", word):
            return dag.schema(word, "a", "b")
        case ("state", key, value):
            return dag.state(key, value)
    raise AssertionError(step)


class HistoryTestbed:
    """A ledger and its loop; every example has an organization of its own."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.numbers = itertools.count()
        self.runner.run(self._open(url))

    async def _open(self, url: str) -> None:
        self.database = Database(url, as_roles=True)
        self.ledger = PostgresLedger(self.database)

    def play(self, history: Sequence[Sequence[Step]]) -> list[str]:
        return self.runner.run(self._play(Scope("acme", f"org-{next(self.numbers)}"), history))

    async def _play(self, scope: Scope, history: Sequence[Sequence[Step]]) -> list[str]:
        dag = Piped(scope)
        await self.ledger.transact(joined(dag.deployed(), dag.created("a")))
        for together in history:
            changes = [change(dag, step) for step in together]
            streams = [append.stream for one in changes for append in one.appends]
            if len(set(streams)) == len(streams):
                changes = [*changes[:-2], joined(*changes[-2:])]
            answers = await asyncio.gather(*(self.ledger.transact(one) for one in changes), return_exceptions=True)
            unexpected = [one for one in answers if isinstance(one, BaseException) and not isinstance(one, NoetlError)]
            assert not unexpected
        return [one.sentence() for one in await pipeline_differences(self.database, scope)]

    async def _close(self) -> None:
        await self.ledger.close()
        await self.database.close()

    def close(self) -> None:
        self.runner.run(self._close())
        self.runner.close()


@pytest.fixture
def testbed(owner_url: str) -> Iterator[HistoryTestbed]:
    testbed = HistoryTestbed(owner_url)
    yield testbed
    testbed.close()


def test_any_history_leaves_the_rows_its_events_tell(testbed: HistoryTestbed) -> None:
    """INV-48."""

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(histories)
    def played(history: list[list[Step]]) -> None:
        assert testbed.play(history) == []

    played()
