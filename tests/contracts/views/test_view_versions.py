"""Versions of views: equal ones are one, a changed one waits beside the one that serves, one process runs each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contracts.views.view_testbed import CITIES, NEIGHBOUR, SCOPE, Ground, standing

from noetl.errors import Conflict, LeaseLost, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.services.views.barriers import Batch
from noetl.services.views.run import ViewRun
from noetl.services.views.supervisor import Keeping
from noetl.spark.session.options import SparkOptions

pytestmark = pytest.mark.service

CHANGED = CITIES.replace("amount > 0", "amount > 1")


@pytest.fixture
async def ground(database: Database) -> AsyncIterator[Ground]:
    options = SparkOptions(home="/nowhere", cache="/nowhere")
    async with standing(database, _NoDrivers(), options) as made:
        yield made


class _NoDrivers:
    """No Spark: whoever asks for it is told so."""

    def for_(self, *_: Any) -> Any:
        raise Unavailable("there is no Spark here")


async def test_equal_views_are_one_version_and_a_changed_one_waits_beside(ground: Ground) -> None:
    """INV-97."""
    first = await ground.deploy(CITIES)
    assert (await ground.deploy("# same\n" + CITIES)).version_id == first.version_id
    version, lease = await ground.claimed("cities")
    await ground.versions.activate(lease, first.target_mark)
    second = await ground.deploy(CHANGED)
    third = await ground.deploy(CITIES)
    found = {one.version_id: one.status for one in await ground.versions.of(SCOPE, "cities")}
    assert found == {first.version_id: "current", second.version_id: "superseded", third.version_id: "building"}
    assert (await ground.versions.serving(SCOPE, "cities")).version_id == version.version_id
    rebuilt = await ground.versions.rebuild(SCOPE, "cities", "tests")
    assert (rebuilt.digest, rebuilt.status, rebuilt.build) == (first.digest, "building", 4)
    await ground.versions.drop(SCOPE, "cities", "tests")
    with pytest.raises(NotFound):
        await ground.versions.serving(SCOPE, "cities")
    assert (await ground.deploy(CITIES)).build == 5


async def test_one_process_runs_a_version_and_whoever_lost_it_changes_nothing(ground: Ground) -> None:
    """INV-95, INV-97."""
    version = await ground.deploy(CITIES)
    (due,) = await ground.versions.due(SCOPE)
    claims = await asyncio.gather(*(ground.versions.claim(SCOPE, due, f"w{number}", 30.0) for number in range(4)))
    (held,) = [one for one in claims if one is not None]
    assert await ground.versions.due(SCOPE) == []
    assert await ground.versions.heartbeat([held]) == []
    await ground.versions.end(held, "it broke", 0.0)
    assert await ground.versions.heartbeat([held]) == [held]
    (again,) = await ground.versions.due(SCOPE)
    assert (again.error, again.attempt) == ("it broke", 1)
    other = await ground.versions.claim(SCOPE, again, "other", 30.0)
    assert other is not None
    head = (await ground.ledger.head()).token()
    batch = Batch(batch=0, mark=head, checkpoint="c", rows={'{"city":"rome"}': '{"city":"rome","notes":1}'})
    with pytest.raises(LeaseLost):
        await ground.sink(SCOPE, version, held).apply(batch)
    assert (await ground.sink(SCOPE, version, other).apply(batch)).changed == 1
    assert (await ground.sink(SCOPE, version, other).apply(batch)).changed == 1
    assert await ground.rows("cities") == [{"city": "rome", "notes": 1}]
    with pytest.raises(LeaseLost):
        await ground.versions.end(held)


async def test_neighbours_do_not_see_each_others_views(ground: Ground) -> None:
    """INV-98."""
    mine, theirs = await ground.deploy(CITIES), await ground.deploy(CITIES, NEIGHBOUR)
    assert mine.version_id != theirs.version_id
    _, lease = await ground.claimed("cities")
    head = (await ground.ledger.head()).token()
    await ground.sink(SCOPE, mine, lease).apply(Batch(batch=0, mark=head, checkpoint="c", rows={"k": '{"a": 1}'}))
    assert await ground.rows("cities", NEIGHBOUR) == []
    assert (await ground.sink(NEIGHBOUR, mine, None).held()).rows == {}
    with pytest.raises(LeaseLost):
        await ground.sink(NEIGHBOUR, mine, lease).apply(Batch(batch=1, mark=head, checkpoint="c"))
    assert {scope.tenant_id for scope in await ground.versions.scopes()} == {"globex"}


async def test_a_run_that_fails_is_told_and_tried_again(ground: Ground) -> None:
    """INV-97."""
    version = await ground.deploy(CITIES)
    keeping = Keeping(ground.around, worker="tests", lease_seconds=30.0, every_seconds=0.1, together=1)
    with pytest.raises(Unavailable, match="no Spark"):
        await keeping.once(SCOPE, version, await ground.ledger.head())
    (failed,) = await ground.versions.of(SCOPE, "cities")
    assert (failed.attempt, failed.error, failed.lease_token) == (3, "there is no Spark here", None)
    assert failed.available_at is not None
    assert failed.available_at > failed.deployed_at
    await ground.versions.claim(SCOPE, failed, "somebody", 30.0)
    with pytest.raises(Conflict, match="another process"):
        await keeping.once(SCOPE, version, await ground.ledger.head())


async def test_two_rows_of_one_key_are_refused(ground: Ground) -> None:
    """INV-98."""
    await ground.deploy(CITIES)
    version, lease = await ground.claimed("cities")
    run = ViewRun(ground.around, version, lease)
    asked = {
        "what": "rows",
        "batch": 0,
        "first": True,
        "keys": ["k", "k"],
        "values": ["{}", "{}"],
        "kept": [True, True],
    }
    with pytest.raises(Exception, match="two rows for the key k"):
        await run.answer(asked)
