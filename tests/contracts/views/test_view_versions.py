"""Versions of views: equal ones are one, a changed one waits beside the one that serves, one process runs each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contracts.views.view_testbed import CITIES, NEIGHBOUR, SCOPE, ViewTestbed, standing

from noetl.errors import Conflict, LeaseLost, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.services.views.barriers import Batch
from noetl.services.views.run import ViewRun
from noetl.services.views.supervisor import Keeping
from noetl.spark.session.options import SparkOptions

pytestmark = pytest.mark.service

CHANGED = CITIES.replace("amount > 0", "amount > 1")


@pytest.fixture
async def testbed(database: Database) -> AsyncIterator[ViewTestbed]:
    options = SparkOptions(home="/nowhere", cache="/nowhere")
    async with standing(database, _NoDrivers(), options) as made:
        yield made


class _NoDrivers:
    """No Spark: whoever asks for it is told so."""

    def for_(self, *_: Any) -> Any:
        raise Unavailable("there is no Spark here")


async def test_equal_views_are_one_version_and_a_changed_one_waits_beside(testbed: ViewTestbed) -> None:
    """INV-97."""
    first = await testbed.deploy(CITIES)
    assert (await testbed.deploy("# same\n" + CITIES)).version_id == first.version_id
    version, lease = await testbed.claimed("cities")
    await testbed.versions.activate(lease, first.target_mark)
    second = await testbed.deploy(CHANGED)
    third = await testbed.deploy(CITIES)
    found = {one.version_id: one.status for one in await testbed.versions.of(SCOPE, "cities")}
    assert found == {first.version_id: "current", second.version_id: "superseded", third.version_id: "building"}
    assert (await testbed.versions.serving(SCOPE, "cities")).version_id == version.version_id
    rebuilt = await testbed.versions.rebuild(SCOPE, "cities", "tests")
    assert (rebuilt.digest, rebuilt.status, rebuilt.build) == (first.digest, "building", 4)
    await testbed.versions.drop(SCOPE, "cities", "tests")
    with pytest.raises(NotFound):
        await testbed.versions.serving(SCOPE, "cities")
    assert (await testbed.deploy(CITIES)).build == 5


async def test_one_process_runs_a_version_and_whoever_lost_it_changes_nothing(testbed: ViewTestbed) -> None:
    """INV-95, INV-97."""
    version = await testbed.deploy(CITIES)
    (due,) = await testbed.versions.due(SCOPE)
    claims = await asyncio.gather(*(testbed.versions.claim(SCOPE, due, f"w{number}", 30.0) for number in range(4)))
    (held,) = [one for one in claims if one is not None]
    assert await testbed.versions.due(SCOPE) == []
    assert await testbed.versions.heartbeat([held]) == []
    await testbed.versions.end(held, "it broke", 0.0)
    assert await testbed.versions.heartbeat([held]) == [held]
    (again,) = await testbed.versions.due(SCOPE)
    assert (again.error, again.attempt) == ("it broke", 1)
    other = await testbed.versions.claim(SCOPE, again, "other", 30.0)
    assert other is not None
    head = (await testbed.ledger.head()).token()
    batch = Batch(batch=0, mark=head, checkpoint="c", rows={'{"city":"rome"}': '{"city":"rome","notes":1}'})
    with pytest.raises(LeaseLost):
        await testbed.sink(SCOPE, version, held).apply(batch)
    assert (await testbed.sink(SCOPE, version, other).apply(batch)).changed == 1
    assert (await testbed.sink(SCOPE, version, other).apply(batch)).changed == 1
    assert await testbed.rows("cities") == [{"city": "rome", "notes": 1}]
    with pytest.raises(LeaseLost):
        await testbed.versions.end(held)


async def test_neighbours_do_not_see_each_others_views(testbed: ViewTestbed) -> None:
    """INV-98."""
    mine, theirs = await testbed.deploy(CITIES), await testbed.deploy(CITIES, NEIGHBOUR)
    assert mine.version_id != theirs.version_id
    _, lease = await testbed.claimed("cities")
    head = (await testbed.ledger.head()).token()
    await testbed.sink(SCOPE, mine, lease).apply(Batch(batch=0, mark=head, checkpoint="c", rows={"k": '{"a": 1}'}))
    assert await testbed.rows("cities", NEIGHBOUR) == []
    assert (await testbed.sink(NEIGHBOUR, mine, None).held()).rows == {}
    with pytest.raises(LeaseLost):
        await testbed.sink(NEIGHBOUR, mine, lease).apply(Batch(batch=1, mark=head, checkpoint="c"))
    assert {scope.tenant_id for scope in await testbed.versions.scopes()} == {"globex"}


async def test_a_run_that_fails_is_told_and_tried_again(testbed: ViewTestbed) -> None:
    """INV-97."""
    version = await testbed.deploy(CITIES)
    keeping = Keeping(testbed.around, worker="tests", lease_seconds=30.0, every_seconds=0.1, together=1)
    with pytest.raises(Unavailable, match="no Spark"):
        await keeping.once(SCOPE, version, await testbed.ledger.head())
    (failed,) = await testbed.versions.of(SCOPE, "cities")
    assert (failed.attempt, failed.error, failed.lease_token) == (3, "there is no Spark here", None)
    assert failed.available_at is not None
    assert failed.available_at > failed.deployed_at
    await testbed.versions.claim(SCOPE, failed, "somebody", 30.0)
    with pytest.raises(Conflict, match="another process"):
        await keeping.once(SCOPE, version, await testbed.ledger.head())


async def test_two_rows_of_one_key_are_refused(testbed: ViewTestbed) -> None:
    """INV-98."""
    await testbed.deploy(CITIES)
    version, lease = await testbed.claimed("cities")
    run = ViewRun(testbed.around, version, lease)
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
