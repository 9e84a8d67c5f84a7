"""Projections in two stores, as a user sets them up: prepared, filled, shown, proven, and changed by configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl.errors import ConfigError
from noetl.runtime.config import load_settings
from noetl.runtime.projections.projector import catch_up, open_far_projector, open_projector, open_server_projector
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.samples.projected_ledger import HOME, a_run, record
from noetl.testing.servers.postgres import FreshDatabases

pytestmark = pytest.mark.service

Noetl = Callable[..., tuple[int, str, str]]
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.yaml"
NOWHERE = "postgresql://noetl_owner@127.0.0.1:1/none"


@pytest.fixture
def store_url(fresh_databases: FreshDatabases) -> Iterator[str]:
    """The owner's URL of a database for a store, which no migration has touched."""
    name = fresh_databases.take_empty()
    yield fresh_databases.url(name)
    fresh_databases.drop(name)


def configure(url: str, *projections: str) -> None:
    """Let the store `analytics` have these projections."""
    Path("noetl.yaml").write_text(
        json.dumps({"projection_stores": {"analytics": {"connection": {"dsn": url}, "projections": projections}}})
    )


def recorded() -> None:
    async def recording() -> None:
        async with open_runtime(load_settings()) as runtime:
            await record(runtime.ledger, a_run(HOME))

    asyncio.run(recording())


def rows(url: str) -> dict[str, int]:
    """How many rows of each projection a database has."""
    with psycopg.connect(url) as connection:
        connection.execute("SET ROLE noetl_projector")
        counted = connection.execute("SELECT projection, count(*) FROM noetl.projection GROUP BY projection")
        return dict(counted.fetchall())


def parsed(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def clean(noetl: Noetl) -> Any:
    report = parsed(noetl("verify", "--all", "--json"))
    assert report["clean"]
    return report["reports"][0]


@pytest.fixture
def prepared(noetl: Noetl, store_url: str) -> Noetl:
    """Commands whose settings give frames to a store that is ready for them."""
    configure(store_url, "frame")
    code, out, _ = noetl("db", "migrate", "--store", "analytics")
    assert (code, "applied 0001" in out) == (0, True)
    return noetl


def test_a_store_without_a_schema_says_how_it_gets_one(noetl: Noetl, store_url: str) -> None:
    configure(store_url, "frame")
    code, _, errors = noetl("projections", "status")
    assert (code, "error: projection store analytics: the database schema is at revision none" in errors) == (1, True)
    assert "hint: run `noetl db migrate --store analytics`" in errors
    assert noetl("db", "migrate", "--store", "analytics")[0] == 0
    assert noetl("projections", "status")[0] == 0
    code, _, errors = noetl("db", "migrate", "--store", "other")
    assert (code, errors) == (2, "error: no projection store 'other' has a database of its own; there is analytics\n")


def test_a_type_that_is_none_is_refused_by_every_command(noetl: Noetl, store_url: str) -> None:
    configure(store_url, "frames")
    code, _, errors = noetl("projections", "status")
    assert (code, "projection_stores.analytics.projections: there is no projection 'frames'" in errors) == (2, True)


def test_types_go_to_their_stores_and_are_shown_and_proven_there(
    prepared: Noetl, owner_url: str, store_url: str
) -> None:
    """INV-124."""
    recorded()
    assert prepared("projections", "run")[0] == 0
    assert rows(store_url) == {"frame": 3}
    assert "frame" not in rows(owner_url)
    status = parsed(prepared("projections", "status", "--json"))
    (store,) = status["stores"]
    assert (store["store"], store["projections"], store["rows"], store["lag_events"]) == ("analytics", ["frame"], 3, 0)
    assert (status["lag_events"], "frame" in status["projections"]) == (0, False)
    assert "\nstore analytics: frame\n" in prepared("projections", "status")[1]
    report = clean(prepared)
    assert {(part["projection"], part["store"]) for part in report["projections"]} >= {
        ("frame", "analytics"), ("loop", "default"),
    }  # fmt: skip
    with psycopg.connect(store_url) as connection:
        connection.execute("SET ROLE noetl_projector")
        connection.execute("DELETE FROM noetl.projection WHERE row_id = (SELECT min(row_id) FROM noetl.projection)")
    code, out, _ = prepared("verify")
    assert (code, "DIFFERS in analytics" in out, "frame " in out) == (1, True, True)
    report = parsed(prepared("projections", "rebuild", "--store", "analytics", "--json"))
    assert (report["differing"], {shard["store"] for shard in report["shards"]}) == (1, {"analytics"})
    clean(prepared)


def test_a_type_that_changes_its_store_waits_for_a_rebuild(prepared: Noetl, owner_url: str, store_url: str) -> None:
    """INV-124."""
    recorded()
    assert prepared("projections", "run")[0] == 0
    configure(store_url, "loop")
    recorded()
    code, _, errors = prepared("projections", "run")
    assert (code, "frame (none, now version" in errors, "loop (version" in errors) == (1, True, True)
    assert "hint: run `noetl projections rebuild`" in errors
    stores = parsed(prepared("projections", "status", "--json"))["stores"]
    assert stores[0]["failing"], "both stores stand still until they are built anew"
    code, out, _ = prepared("projections", "rebuild")
    assert (code, "default: rebuilt" in out, "analytics: rebuilt" in out) == (0, True, True)
    assert rows(store_url) == {"loop": 2}
    assert (rows(owner_url)["frame"], "loop" in rows(owner_url)) == (6, False)
    clean(prepared)
    recorded()
    assert prepared("projections", "run")[0] == 0
    clean(prepared)


def test_a_store_that_is_away_is_said_so_and_stops_nothing_else(noetl: Noetl, owner_url: str) -> None:
    """INV-124."""
    configure(NOWHERE, "frame")
    recorded()
    code, _, errors = noetl("projections", "run")
    assert (code != 0, "error: projection store analytics: PostgreSQL does not answer" in errors) == (True, True)
    status = parsed(noetl("projections", "status", "--json"))
    assert (status["lag_events"], status["rows"] > 0) == (0, True)
    assert "does not answer" in status["stores"][0]["away"]
    assert "away: projection store analytics" in noetl("projections", "status")[1]
    code, _, errors = noetl("verify")
    assert (code != 0, "error: projection store analytics" in errors) == (True, True)


def test_a_run_is_projected_into_both_stores_and_shown_from_them(prepared: Noetl, store_url: str) -> None:
    configure(store_url, "frame", "loop", "stage")
    assert prepared("run", str(EXAMPLE))[0] == 0
    assert (rows(store_url).keys(), rows(store_url)["frame"]) == ({"frame", "loop", "stage"}, 4)
    shown = parsed(prepared("executions", "show", "last", "--json"))
    (loop,) = [step for step in shown["steps"] if step["step"] == "price"]
    assert (loop["rows"], loop["done"]) == (40, 40)
    clean(prepared)


@pytest.mark.parametrize("in_server", [None, "true"])
def test_a_server_projects_into_every_store_that_no_projector_serves(
    prepared: Noetl, monkeypatch: pytest.MonkeyPatch, in_server: str | None
) -> None:
    """INV-124."""
    if in_server is not None:
        monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", in_server)

    async def serving() -> None:
        async with open_runtime(load_settings()) as runtime, open_server_projector(runtime):
            await record(runtime.ledger, a_run(HOME))
            await covered(runtime)

    asyncio.run(serving())
    clean(prepared)


def test_a_command_waits_for_projectors_of_every_store(prepared: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", "false")

    async def commanding() -> None:
        async with open_runtime(load_settings()) as runtime, open_runtime(load_settings()) as other:
            await record(runtime.ledger, a_run(HOME))
            await catch_up(runtime)
            assert sum((await runtime.projections.checkpoints()).positions) == 0, "nobody lives, and it writes nothing"
            async with open_projector(other):
                await covered(runtime)
                await record(runtime.ledger, a_run(HOME))
                await catch_up(runtime)
                for line in runtime.projections.lines:
                    assert await line.store.checkpoints() == await runtime.ledger.head()

    asyncio.run(commanding())


async def covered(runtime: Runtime) -> None:
    """Wait until every store covers the ledger; the server sees the checkpoints move."""
    head = await runtime.ledger.head()
    async with asyncio.timeout(30):
        while not (await runtime.projections.checkpoints()).covers(head):
            pass


def test_without_a_ledger_there_is_one_store(prepared: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_EVENT_STORE__DISTRIBUTION_BACKEND", "nats-jetstream")
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", "nats://127.0.0.1:1")

    async def starting() -> None:
        async with open_runtime(load_settings()) as runtime, open_far_projector(runtime):
            pass

    with pytest.raises(ConfigError, match="writes to its own database alone, not to analytics"):
        asyncio.run(starting())
