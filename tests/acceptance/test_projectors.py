"""`noetl projector` beside a server: who projects what, who is seen to, and how far it is."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import Begin, line, processes_in

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.stream.encoding import message_of
from noetl.runtime.config import load_settings
from noetl.runtime.metrics.projections import ProjectionMetrics, projection_lags
from noetl.runtime.projections.projector import (
    catch_up,
    open_projector,
    open_server_projector,
    projector_name,
    projectors_live,
)
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.engines.parity import assert_parity
from noetl.testing.samples.projected_ledger import HOME, a_run, pure_rows, record, stored_rows
from noetl.testing.servers.postgres import FreshDatabases

pytestmark = pytest.mark.service

Noetl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts roles in processes of their own; none outlives the test."""
    with processes_in(tmp_path) as processes:
        yield processes.begin


def with_runtime(do: Callable[[Runtime], Awaitable[Any]]) -> Any:
    async def doing() -> Any:
        async with open_runtime(load_settings()) as runtime:
            return await do(runtime)

    return asyncio.run(doing())


async def until(held: Callable[[], Awaitable[bool]]) -> None:
    """Ask the database again and again, since other processes change it."""
    async with asyncio.timeout(30):
        while not await held():
            pass


async def projected(runtime: Runtime) -> None:
    head = await runtime.ledger.head()

    async def covered() -> bool:
        return (await runtime.projections.checkpoints()).covers(head)

    await until(covered)


def test_a_projector_says_its_name_and_its_shards_and_is_shown_as_their_holder(noetl: Noetl, begin: Begin) -> None:
    projector = begin("projector", NOETL_SHARD_ID="3", NOETL_PROJECTIONS__IN_SERVER="false")
    assert line(projector) == "projecting as noetl-projector-3"
    assert line(projector) == "shards: " + " ".join(map(str, range(16)))
    with_runtime(lambda runtime: record(runtime.ledger, a_run(HOME)))
    with_runtime(projected)
    status = json.loads(noetl("projections", "status", "--json")[1])
    assert status["lag_events"] == 0
    assert {shard["holder"]["holder"] for shard in status["shards"]} == {"noetl-projector-3"}
    _, shown, _ = noetl("projections", "status")
    assert shown.splitlines()[1].split()[-2:] == ["noetl-projector-3", "ok"]
    projector.send_signal(signal.SIGTERM)
    assert line(projector).startswith("SIGTERM: finishing")
    assert line(projector) == "shards: none"
    assert projector.wait(30) == 0
    status = json.loads(noetl("projections", "status", "--json")[1])
    assert {shard["holder"] for shard in status["shards"]} == {None}


def test_a_name_is_a_name_and_a_number_counts_projectors(noetl: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, name in (("noetl-projector-0", "noetl-projector-0"), ("7", "noetl-projector-7"), ("east", "east")):
        monkeypatch.setenv("NOETL_SHARD_ID", given)
        assert projector_name(load_settings()) == name
    monkeypatch.delenv("NOETL_SHARD_ID")
    monkeypatch.setenv("NOETL_NODE_ID", "node-1")
    assert projector_name(load_settings()) == "node-1"


@pytest.mark.parametrize("in_server", ["true", "false", None])
def test_a_server_projects_always_never_or_while_no_projector_lives(
    in_server: str | None, noetl: Noetl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_PROJECTIONS__LEASE_SECONDS", "1")
    if in_server is not None:
        monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", in_server)

    async def serve(runtime: Runtime) -> None:
        async with (
            open_runtime(load_settings()) as other,
            open_projector(other),
            open_server_projector(runtime),
        ):
            assert _tasks_of_the_server() == (in_server == "true")
            await record(runtime.ledger, a_run(HOME))
            await projected(runtime)
            assert await projectors_live(runtime.database, 1)
        async with open_server_projector(runtime):
            if in_server == "false":
                assert not _tasks_of_the_server()
                return
            await record(runtime.ledger, a_run(HOME))
            await projected(runtime)

    def _tasks_of_the_server() -> bool:
        listeners = [task for task in asyncio.all_tasks() if task.get_name() == "noetl-projector-listen"]
        return len(listeners) > len(
            [task for task in asyncio.all_tasks() if task.get_name() == "noetl-shards-projector"]
        )

    with_runtime(serve)


def test_a_server_steps_back_when_a_projector_comes_and_in_when_it_dies(
    noetl: Noetl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_PROJECTIONS__LEASE_SECONDS", "1")

    async def projecting(_: Runtime) -> bool:
        return any(task.get_name() == "noetl-projector-listen" for task in asyncio.all_tasks())

    async def serve(runtime: Runtime) -> None:
        async def living() -> None:
            async with runtime.database.transaction(None, "projector") as connection:
                await connection.execute(
                    "INSERT INTO noetl.shard_holder (role, holder) VALUES ('projector', 'elsewhere') "
                    "ON CONFLICT (role, holder) DO UPDATE SET heartbeat_at = clock_timestamp()"
                )

        async with open_server_projector(runtime):
            assert await projecting(runtime)
            async with asyncio.timeout(30):
                while await projecting(runtime):
                    await living()
                while not await projecting(runtime):
                    await projectors_live(runtime.database, 1)

    with_runtime(serve)


def test_a_command_waits_for_the_projectors_where_only_they_write(
    noetl: Noetl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", "false")

    async def with_and_without(runtime: Runtime) -> None:
        await record(runtime.ledger, a_run(HOME))
        await catch_up(runtime)
        assert sum((await runtime.projections.checkpoints()).positions) == 0, "nobody lives, and it writes nothing"
        async with open_runtime(load_settings()) as other, open_projector(other):
            await catch_up(runtime)
            assert await runtime.projections.checkpoints() == await runtime.ledger.head()

    with_runtime(with_and_without)


async def test_lag_is_shown_as_metrics_shard_by_shard(database: Database, ledger: PostgresLedger) -> None:
    registry = CollectorRegistry()
    metrics = ProjectionMetrics(registry)
    assert 'projection_lag_events{shard="15"} 0.0' in generate_latest(registry).decode()
    await record(ledger, a_run(HOME))
    metrics.show(await projection_lags(database))
    head = (await ledger.head()).positions
    for shard, position in enumerate(head):
        assert registry.get_sample_value("projection_lag_events", {"shard": str(shard)}) == position
        waited = registry.get_sample_value("projection_lag_seconds", {"shard": str(shard)})
        assert waited is not None
        assert (waited > 0) == (position > 0)
    store = PostgresProjectionStore(database)
    await Projector(ledger, store, FoldRegistry(), Upcasters()).run_until(await ledger.head())
    metrics.show(await projection_lags(database))
    assert sum(
        registry.get_sample_value(name, {"shard": str(shard)}) or 0.0
        for name in ("projection_lag_events", "projection_lag_seconds")
        for shard in range(16)
    ) == 0.0  # fmt: skip


async def test_a_stream_wakes_a_projector_and_may_be_wiped(
    nats_url: str, stream_prefix: str, owner_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)
    mirror_events(monkeypatch, nats_url, stream_prefix)
    settings = load_settings()
    async with (
        open_runtime(settings) as runtime,
        open_stream(settings, runtime.database, "events") as stream,
        open_projector(runtime),
    ):
        await stream.open()
        for wiped in (False, True):
            before = await runtime.ledger.head()
            await record(runtime.ledger, a_run(HOME))
            if wiped:
                await stream.wipe()
            for shard, position in enumerate(before.positions):
                events = [event async for event in runtime.ledger.read_shard(shard, position + 1)]
                await stream.publish([message_of(event) for event in events])
            await projected(runtime)
    await settled_parity(owner_url)


def test_a_projector_on_the_far_side_of_a_stream_needs_no_ledger(
    noetl: Noetl,
    begin: Begin,
    nats_url: str,
    stream_prefix: str,
    owner_url: str,
    fresh_databases: FreshDatabases,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror_events(monkeypatch, nats_url, stream_prefix)
    far = fresh_databases.take()
    projector = begin("projector", "--from-stream", NOETL_SHARD_ID="far-0", NOETL_DATABASE_URL=fresh_databases.url(far))
    assert line(projector) == "projecting as far-0"
    assert line(projector).startswith("shards: 0 ")

    async def mirrored(runtime: Runtime) -> None:
        await record(runtime.ledger, a_run(HOME))
        async with open_stream(runtime.settings, runtime.database, "events") as stream:
            await stream.open()
            for shard in range(16):
                await stream.publish([message_of(event) async for event in runtime.ledger.read_shard(shard)])
        head = await runtime.ledger.head()
        database = Database(fresh_databases.url(far), as_roles=True)
        store = PostgresProjectionStore(database)

        async def covered() -> bool:
            return (await store.checkpoints()).covers(head)

        await until(covered)
        assert await stored_rows(store, HOME) == await pure_rows(runtime.ledger, built_in_folds())
        await database.close()

    with_runtime(mirrored)
    projector.send_signal(signal.SIGTERM)
    assert projector.wait(30) == 0
    fresh_databases.drop(far)


async def settled_parity(url: str) -> None:
    """Compare what is stored with what the events say."""
    database = Database(url, as_roles=True)
    ledger = PostgresLedger(database)
    await assert_parity(database, ledger)
    await ledger.close()
    await database.close()
