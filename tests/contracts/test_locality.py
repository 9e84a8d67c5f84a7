"""Work is claimed near its inputs on a real database: workers of two nodes on one machine, one rule in SQL and in Python."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import orjson
import pyarrow
import pytest

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant, FrameReport
from noetl.engine.dispatch.open_work.postgres import PostgresOpenWork
from noetl.engine.dispatch.stores import postgres_stores
from noetl.engine.plan.locality import Patience, Place, Wish, claimant, may_take, opening, place_of
from noetl.engine.plan.trigger import CommandEnded
from noetl.kernel.leases.open_work import Nearness
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, encode_table
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.open_work import open_work_differences
from noetl.model.event import Event
from noetl.runtime.assembly.engine import open_engine, producer_of
from noetl.runtime.assembly.pipelines import open_pipelines
from noetl.runtime.payloads.tiers import close_fabrics
from noetl.runtime.roles.worker import open_local_worker
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.testing.samples.drafts import PRODUCER
from noetl.testing.samples.executions import IDS, SCOPE, Driven

from .work_tables import rows

pytestmark = pytest.mark.service

LONG = Patience(preference="zone", wait_seconds=600.0)
SHORT = Patience(preference="zone", wait_seconds=0.05)
REDUCE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: reduce, path: tests/reduce}
workflow:
  - step: measure
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 1}}}
    tool: {kind: noop, input: {some: work}}
    next: {arcs: [{step: total}]}
  - step: total
    tool: {kind: noop, input: {all: "{{ measure }}"}}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: noop, input: {some: work}}
"""


class LocalityTestbed:
    """An engine that is told what workers of two nodes did."""

    def __init__(self, database: Database, ledger: PostgresLedger, patience: Patience) -> None:
        self.database = database
        self.ledger = ledger
        self.payloads = MemoryPayloadStore()
        self.engine = Engine(
            postgres_stores(database, ledger),
            ledger,
            self.payloads,
            IDS.mint,
            IDS.mint_many,
            PRODUCER,
            kinds=("noop",),
            patience=patience,
        )
        self.dispatch = self.engine.dispatch(SCOPE)

    async def measured(
        self, *, size: int = 20_000, before_the_end: Callable[[], Awaitable[None]] | None = None
    ) -> CommandGrant | None:
        """Have two frames done by a worker of n1 and one by a worker of n2, which ends last; return what that one gets."""
        entry = (await self.engine.catalog.register(SCOPE, REDUCE)).entry
        await self.engine.start(SCOPE, entry, requested_by="tests")
        slots = {name: (await self.dispatch.claim(name, 1, 0.0))[0] for name in ("n1/1", "n2/2")}
        following = None
        for name, wanted in (("n1/1", 2), ("n2/2", 1)):
            frame = await self.dispatch.next_frame(slots[name], name)
            for left in reversed(range(wanted)):
                assert frame is not None
                data = encode_table(pyarrow.table({"data": [f"{name}/{left}".ljust(size)]})).data
                ref = await self.payloads.store(SCOPE, data, ARROW_STREAM, rows=1)
                frame = await self.dispatch.commit_frame(
                    slots[name], frame, FrameReport(row_count=1, output=ref), worker=name, take_next=left > 0
                )
        for name, slot in slots.items():
            if name == "n2/2" and before_the_end is not None:
                await before_the_end()
            end = CommandEnded(command_id=slot.command_id, attempt=1, status="ok")
            following = await self.dispatch.complete(slot, end, worker=name, take_next=True)
        return following

    async def claim(self, worker: str, wait: float = 0.0, wish: Wish | None = None) -> list[str]:
        return [grant.command_id for grant in await self.dispatch.claim(worker, 5, wait, wish)]

    async def waiting(self, *workers: str) -> list[asyncio.Task[list[str]]]:
        """Let workers wait for work, in this order."""
        tasks = []
        for worker in workers:
            tasks.append(asyncio.create_task(self.claim(worker, 60.0)))
            while worker not in [one.worker for one in self.engine.executions.waiters._waiting.get(SCOPE, ())]:
                assert not tasks[-1].done()
                await asyncio.sleep(0)
        return tasks

    async def near(self) -> Any:
        ((near,),) = await rows(self.database, "command", "near")
        assert await open_work_differences(self.database, SCOPE, None, Upcasters()) == []
        return None if near is None else orjson.loads(near)

    async def execution_id(self) -> int:
        ((found,),) = await rows(self.database, "execution_head", "execution_id")
        return int(found)

    async def said(self, kind: str, step: str) -> list[Event]:
        events = [event async for event in self.ledger.read_execution(SCOPE, await self.execution_id())]
        return [
            one for one in events if one.event_type == kind and (one.node_name or one.command_id or "").startswith(step)
        ]


@pytest.fixture
async def testbed(request: pytest.FixtureRequest, database: Database, ledger: PostgresLedger) -> LocalityTestbed:
    return LocalityTestbed(database, ledger, getattr(request, "param", LONG))


async def test_a_reduce_is_left_to_the_node_that_holds_most_of_its_inputs(testbed: LocalityTestbed) -> None:
    """INV-111."""
    assert await testbed.measured() is None, "the worker that ended last is not where most inputs lie"
    assert await testbed.near() == {"node": "n1"}
    assert await testbed.claim("n2/2") == []
    assert await testbed.claim("w", wish=Wish(prefer_node="n2")) == []
    assert await testbed.claim("n1/3") == ["total/1/0"]
    (exited,) = await testbed.said("step.exited", "measure")
    assert exited.meta["near"]["node"] == "n1"
    assert exited.meta["near"]["bytes"] > 2 * 20_000


async def test_a_worker_of_the_node_that_waits_gets_it_at_once_whoever_waits_longer(testbed: LocalityTestbed) -> None:
    line: list[asyncio.Task[list[str]]] = []

    async def wait() -> None:
        line.extend(await testbed.waiting("n3/7", "n2/7", "n1/8"))

    assert await testbed.measured(before_the_end=wait) is None
    assert await line[2] == ["total/1/0"]
    (issued,), (claimed,) = (
        await testbed.said("command.issued", "total"),
        await testbed.said("command.claimed", "total"),
    )
    assert claimed.ingest_time == issued.ingest_time, "it was claimed in the transaction that issued it"
    for other in line[:2]:
        assert not other.done()
        other.cancel()
    await asyncio.gather(*line[:2], return_exceptions=True)


@pytest.mark.parametrize("testbed", [SHORT], indirect=True)
async def test_who_is_farther_gets_it_after_the_bound_though_no_worker_of_the_node_is_left(
    testbed: LocalityTestbed,
) -> None:
    """INV-111."""
    await testbed.measured()
    assert await testbed.claim("n2/2", 60.0) == ["total/1/0"]
    (issued,), (claimed,) = (
        await testbed.said("command.issued", "total"),
        await testbed.said("command.claimed", "total"),
    )
    waited = (claimed.ingest_time - issued.ingest_time).total_seconds()
    assert waited >= SHORT.opens_after("zone")


@pytest.mark.no_parity
async def test_a_claim_that_stays_near_never_takes_what_is_far(testbed: LocalityTestbed, owner_url: str) -> None:
    await testbed.measured()
    await _age(owner_url, 86_400)
    assert await testbed.claim("n2/2", wish=Wish(prefer_node="n2", max_distance="node")) == []
    assert await testbed.claim("n2/2", wish=Wish(prefer_node="n2", max_distance="zone")) == ["total/1/0"]


async def test_small_results_lie_nowhere_and_work_that_follows_is_anybodys(testbed: LocalityTestbed) -> None:
    """INV-112."""
    following = await testbed.measured(size=10)
    assert following is not None
    assert following.command_id == "total/1/0"
    assert await testbed.near() is None
    (exited,) = await testbed.said("step.exited", "measure")
    assert "near" not in exited.meta


async def test_a_large_result_of_a_plain_step_lies_where_its_worker_is(testbed: LocalityTestbed) -> None:
    grant = await testbed.measured(size=10)
    assert grant is not None
    ref = await testbed.payloads.store(SCOPE, b"x" * 100_000, JSON)
    end = CommandEnded(command_id=grant.command_id, attempt=1, status="ok", ref=ref)
    following = await testbed.dispatch.complete(grant, end, worker="n2/2", take_next=True)
    assert following is not None, "it stays with the worker that holds its input"
    assert following.command_id == "after/1/0"
    assert await testbed.near() == {"node": "n2"}


async def _age(owner_url: str, seconds: float) -> None:
    connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    try:
        await connection.execute(
            "UPDATE noetl.command SET available_at = available_at - make_interval(secs => $1)", float(seconds)
        )
    finally:
        await connection.close()


@pytest.mark.no_parity
async def test_the_database_and_the_rule_say_the_same(
    database: Database, ledger: PostgresLedger, owner_url: str
) -> None:
    """INV-111."""
    places = [None, Place("n1", "z1", "r1"), Place("n2", "z1", "r1"), Place("n3", "z2", "r1"), Place("n4", "z1", "r2")]
    places += [Place("n5"), Place("n6", "z1")]
    run, work = Driven(), PostgresOpenWork(database)
    await ledger.transact(run.requested())
    for number, place in enumerate(places):
        given = {} if place is None else {"near": msgspec.to_builtins(place)}
        await ledger.transact(run.issued(f"s{number}/1/0", **given))
    wishes = [Wish(max_distance=far) for far in ("node", "zone", "region", "any")]  # type: ignore[arg-type]
    stem = "noetl://tenant/t/org/o/cluster/c"
    names = [
        "w",
        "n5/1",
        "n9/1",
        f"{stem}/region/r1/zone/z1/node/n1/process/1/worker/h",
        f"{stem}/zone/z1/node/x/worker/h",
    ]
    patiences = [Patience(preference=one, wait_seconds=100.0) for one in ("any", "node", "zone", "region")]  # type: ignore[arg-type]
    for waited in (50.0, 150.0, 250.0, 350.0):
        await _age(owner_url, 50.0 if waited == 50.0 else 100.0)
        for who in (claimant(name, wish) for name in names for wish in wishes):
            for patience in patiences:
                near = Nearness(who.node, who.zone, who.region, opening(who, patience))
                found = await work.pending(SCOPE, 100, near, loops=True)
                expected = {
                    f"s{number}/1/0" for number, place in enumerate(places) if may_take(who, place, waited, patience)
                }
                assert {one.command_id for one in found} == expected, (who, patience, waited)


LARGE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/large}
workflow:
  - step: measure
    loop: {in: [1, 2, 3, 4], iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 1, verify_ipc: true}}}
    tool: {kind: duckdb, command: "SELECT repeat('x', 20000) AS note"}
    next: {arcs: [{step: total}]}
  - step: total
    tool: {kind: duckdb, input: {notes: "{{ measure }}"}, command: SELECT count(*) AS many FROM notes}
"""


async def test_two_workers_of_two_nodes_reduce_where_most_was_made(
    database: Database, ledger: PostgresLedger, owner_url: str, tmp_path: Path
) -> None:
    """INV-111, INV-159."""
    cache = {"tier_15_directory": str(tmp_path), "tier_15_node_budget_mb": 16}
    async with AsyncExitStack() as stack:
        stack.callback(close_fabrics)
        runtimes = []
        for node in ("n1", "n2"):
            own = {"home": str(tmp_path), "tenant_id": SCOPE.tenant_id, "organization_id": SCOPE.organization_id}
            own |= {"node_id": node, "zone": "z1", "scheduler": {"locality_wait_ms": 600_000}}
            settings = Settings.model_validate(
                {"runtime": own, "database": {"url": owner_url}, "payload_store": {"cache": cache}}
            )
            runtimes.append(await stack.enter_async_context(open_runtime(settings)))
        engine = await stack.enter_async_context(open_engine(runtimes[0]))
        for runtime in runtimes:
            pipelines = await stack.enter_async_context(open_pipelines(runtime, "worker", drive=False))
            await stack.enter_async_context(open_local_worker(runtime, engine, pipelines, 1))
        entry = (await engine.catalog.register(SCOPE, LARGE)).entry
        started = await engine.start(SCOPE, entry, requested_by="tests")
        state = await engine.finished(SCOPE, started.execution_id, 60.0)
    assert state.status == "COMPLETED", state.error
    events = [event async for event in ledger.read_execution(SCOPE, started.execution_id)]
    (issued,) = [one for one in events if one.event_type == "command.issued" and one.node_name == "total"]
    leases = [one for one in events if one.command_id == issued.command_id and one.meta.get("worker")]
    assert [place_of(one.meta["worker"]) for one in leases] == [Place(**issued.meta["near"])]
    assert issued.meta["near"]["zone"] == "z1"
    assert {one.meta["worker"] for one in events if "worker" in one.meta} == {
        producer_of(runtime, "worker") for runtime in runtimes
    }
