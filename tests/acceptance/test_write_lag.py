"""What is accepted and not in the ledger is seen: by the gauges of every process that has them, and by a person."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from noetl.cli.ledger.stream.show import facts, text
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.roles import open_materializer_metrics
from noetl.runtime.metrics.write_path import open_waiting
from noetl.runtime.nats.server import NatsServer
from noetl.runtime.roles.server import open_server
from noetl.runtime.service import Stopping
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.status import stream_status
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.projected_ledger import HOME, a_run, record

pytestmark = pytest.mark.service

FACTS = 5
HELLO = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: demo/hello}
workflow:
  - step: greet
    tool: {kind: noop}
"""


def settings_of(url: str, home: Path, nats: str, prefix: str) -> Settings:
    """Return the settings of processes whose writes go through the stream."""
    connection = {"url": nats, "stream_prefix": prefix}
    store = {"write_path": "stream", "distribution_backend": "nats-jetstream", "connection": connection}
    return Settings.model_validate(
        {"runtime": {"home": str(home), "metrics_port": 0}, "database": {"url": url}, "event_store": store}
    )


@contextmanager
def nothing_written(owner_url: str) -> Iterator[None]:
    """Keep materializers from writing for the time of the block."""
    with psycopg.connect(owner_url) as held:
        held.execute("LOCK TABLE noetl.materialized IN EXCLUSIVE MODE")
        yield


def figures(exposed: bytes) -> dict[str, float]:
    """Return what the series of the lag tell, and how often nobody could."""
    wanted = ("materializer_lag_events", "materializer_lag_seconds", "noetl_backlog_read_failures_total")
    families = text_string_to_metric_families(exposed.decode())
    return {one.name: one.value for family in families for one in family.samples if one.name in wanted}


@asynccontextmanager
async def shown(settings: Settings) -> AsyncIterator[list[Callable[[], object]]]:
    """Give what shows the metrics of a server, a worker or scheduler, and a materializer of its own."""
    async with open_runtime(settings) as runtime, open_waiting(runtime) as waiting:
        plain = Metrics("1", database=runtime.database)
        plain.watch_waiting(waiting)
        async with open_materializer_metrics(runtime, lambda _: None) as (own, _):
            yield [plain.exposition, own.exposition]


async def see(exposition: Callable[[], object], events: int) -> dict[str, float]:
    """Ask until so many events are said to wait; what is read is kept for a second."""
    seen: dict[str, float] = {}

    async def so_many() -> bool:
        nonlocal seen
        seen = figures((await exposition())[0])  # type: ignore[misc]
        return seen["materializer_lag_events"] == events

    await until(so_many, f"{events} events that wait, but {seen}")
    return seen


async def published(runtime: Runtime, messages: int) -> None:
    """Wait until so many messages of the stream of writes are not in the ledger."""

    async def so_many() -> bool:
        writes = (await stream_status(runtime)).writes
        return writes is not None and writes.waiting_messages == messages

    await until(so_many, f"{messages} messages that wait")


@pytest.mark.slow  # it stops the materializer by a lock, and has waited for two minutes on a crowded machine
async def test_what_waits_in_the_stream_is_counted_and_shown_until_it_is_in_the_ledger(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    async with (
        open_server(settings, Stopping(), lambda _: None, port=0) as serving,
        aiohttp.ClientSession(serving.url) as http,
        shown(settings) as others,
    ):

        async def of_server() -> tuple[bytes, str]:
            async with http.get("/metrics") as answer:
                return await answer.read(), ""

        async def posted(number: int) -> None:
            fact = {"event_type": "business.seen", "aggregate_id": f"thing-{number}"}
            async with http.post("/api/events", json=fact) as answer:
                assert answer.status == 201

        await posted(0)
        await serving.runtime.ledger.settled()
        for exposition in (of_server, *others):
            await see(exposition, 0)
        with nothing_written(owner_url):
            # Decisions come first: a materializer that cannot write a fact holds up decisions of the fact's shard.
            # What is decided waits in PostgreSQL and, once it is published, in the stream as well: it counts once.
            entry = (await serving.engine.catalog.register(HOME, HELLO)).entry
            await serving.engine.start(HOME, entry, None, requested_by="tests")
            with psycopg.connect(owner_url) as owner:
                owner.execute("SET ROLE noetl_relay")
                (decided,) = owner.execute("SELECT count(*) FROM noetl.pending_event").fetchone() or (0,)
            assert decided > 1
            await published(serving.runtime, decided)
            for exposition in (of_server, *others):
                await see(exposition, decided)
            for number in range(FACTS):
                await posted(number)
            for exposition in (of_server, *others):
                seen = await see(exposition, decided + FACTS)
                assert 0 < seen["materializer_lag_seconds"] < 30
            status = await stream_status(serving.runtime)
            told = facts(status)["writes"]
            assert told["waiting_messages"] == decided + FACTS
            waiting = [one for one in told["shards"] if one["waiting_messages"]]
            assert sum(one["waiting_messages"] for one in waiting) == decided + FACTS
            assert all(one["oldest_at"] and "/server/" in one["holder"] for one in waiting)
            assert json.loads(json.dumps(told)) == told
            lines = text(status).splitlines()
            assert lines[-1].endswith(f"messages, {decided + FACTS} not in the ledger yet")
            assert sum("/server/" in line for line in lines) == 16
        for exposition in (of_server, *others):
            assert (await see(exposition, 0))["materializer_lag_seconds"] == 0
        assert text(await stream_status(serving.runtime)).splitlines()[-1].endswith("messages, 0 not in the ledger yet")


async def test_what_is_decided_is_counted_also_while_the_stream_is_away(owner_url: str, tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    settings = settings_of(owner_url, tmp_path, server.url, "away")

    async def decided(runtime: Runtime) -> int:
        """Record a run whose appends nobody waits for."""
        drafts = a_run(HOME, 1)
        async with runtime.ledger.decision(HOME) as decision:
            for draft in drafts:
                await decision.append(draft.stream, [draft])
        return len(drafts)

    async with open_runtime(settings) as runtime, open_waiting(runtime) as waiting:
        await record(runtime.ledger, a_run(HOME, 1))
        await WritePathChange(runtime.database, runtime.ledger.way).to("stream")
        assert (await waiting()).events == 0
        events = await decided(runtime)
        found = await waiting()
        assert (found.events, found.stale) == (events, False)
        assert found.seconds > 0
        await server.kill()
        more = await decided(runtime)
        found = await waiting()
        assert (found.events, found.stale) == (events + more, True)
