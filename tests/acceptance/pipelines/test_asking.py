"""Queries over published datasets: pinned at one mark, for those who may read them, each one recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from noetl.errors import Denied, HistoryNotKept, InputError, NotFound
from noetl.kernel.ledger.archive.deletion import _OPEN
from noetl.model.catalogue import ENDING
from noetl.services.credentials.tokens import ApiTokens
from noetl.services.people import People
from noetl.services.query.access import Asker
from noetl.services.query.audit import digest
from noetl.services.query.errors import QueriesBusy, QueryFailed, QueryRefused, QueryTimedOut
from noetl.services.query.options import Limits
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.samples.drafts import PRODUCER

from .asking import Asking, open_asking
from .shop import order, shop

pytestmark = pytest.mark.service

SUM = "SELECT CAST(sum(amount) AS BIGINT) AS amount, count(*) AS orders FROM clean"
ENDLESS = "SELECT count(*) AS n FROM range(1000000) AS a, range(1000000) AS b, range(1000000) AS c"


@pytest.fixture
async def asking(pipelines: TestedPipelines) -> AsyncIterator[Asking]:
    """A shop with two orders, and the way to ask about it."""
    pipelines.give("orders", order(1, 10), order(2, 20))
    await pipelines.deploy(shop())
    async with open_asking(pipelines) as found:
        yield found


async def test_an_answer_tells_what_it_was_read_from(asking: Asking, pipelines: TestedPipelines) -> None:
    answer = await asking.ask("SELECT day, amount FROM clean ORDER BY day")
    assert answer.table.to_pylist() == [{"day": "1", "amount": 10}, {"day": "2", "amount": 20}]
    view = await pipelines.view("clean")
    assert view.generation is not None
    (read,) = answer.datasets
    assert (read.name, read.dataset_uuid) == ("clean", view.dataset.dataset_uuid)
    assert read.dataset_version == view.generation.dataset_version
    assert answer.mark.positions <= (await pipelines.runtime.ledger.head()).positions
    both = await asking.ask('SELECT t.amount - sum(c.amount) AS rest FROM totals AS t, "CLEAN" AS c GROUP BY t.amount')
    assert both.table.to_pylist() == [{"rest": Decimal(0)}]
    assert {one.name for one in both.datasets} == {"totals", "CLEAN"}


async def test_the_same_question_at_its_mark_gives_the_same_rows(asking: Asking, pipelines: TestedPipelines) -> None:
    """INV-78: through new data, a cutover and a rollback."""
    first = await asking.ask(SUM)
    pipelines.give("orders", order(1, 10), order(2, 25), order(3, 5))
    await pipelines.emit("shop", "orders")
    second = await asking.ask(SUM)
    await pipelines.deploy(shop(factor=100))
    third = await asking.ask(SUM)
    await pipelines.rollback("shop")
    answers = ((first, 30, 2), (second, 40, 3), (third, 4000, 3))
    for answer, amount, orders in answers:
        assert answer.table.to_pylist() == [{"amount": amount, "orders": orders}]
        again = await asking.ask(SUM, answer.mark)
        assert again.table == answer.table
        assert (again.datasets, again.mark) == (answer.datasets, answer.mark)
    assert first.datasets[0].dataset_version != third.datasets[0].dataset_version
    assert await asking.rows(SUM) == second.table.to_pylist()


async def test_columns_that_came_later_are_null_before(asking: Asking, pipelines: TestedPipelines) -> None:
    wide = """
        name: wide
        jobs:
          - name: rows
            operator: made
            runtime: dispatcher
            update_strategy: append
            unique_key: [day]
            schema: {evolve: add_columns}
        publish: [rows]
    """
    pipelines.give("rows", order(1, 10))
    await pipelines.deploy(wide)
    before = await asking.ask("SELECT * FROM rows")
    pipelines.give("rows", order(2, 20, city="Bonn"))
    await pipelines.emit("wide", "rows")
    after = await asking.ask("SELECT day, city FROM rows ORDER BY day")
    assert after.table.to_pylist() == [{"day": "1", "city": None}, {"day": "2", "city": "Bonn"}]
    assert after.table == (await asking.ask("SELECT day, city FROM rows ORDER BY day", after.mark)).table
    assert await asking.rows("SELECT * FROM rows", before.mark) == before.table.to_pylist()


async def test_only_what_is_published_can_be_asked(asking: Asking) -> None:
    for name in ("orders", '"shop.orders.0"', "payroll"):
        with pytest.raises(QueryRefused, match="there is no published dataset"):
            await asking.ask(f"SELECT * FROM {name}")
    with pytest.raises(QueryRefused) as caught:
        await asking.ask("SELECT *\nFROM totles")
    assert caught.value.message.startswith("line 2, column 6")
    assert caught.value.hint == "did you mean totals?"


async def test_organizations_never_read_each_other(
    asking: Asking, pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    other_pipelines.give("orders", order(7, 700))
    await other_pipelines.deploy(shop())
    mine, theirs = await asking.ask(SUM), await asking.ask(SUM, of=other_pipelines)
    assert mine.table.to_pylist() == [{"amount": 30, "orders": 2}]
    assert theirs.table.to_pylist() == [{"amount": 700, "orders": 1}]
    assert mine.datasets[0].dataset_uuid != theirs.datasets[0].dataset_uuid
    await other_pipelines.deploy(
        shop().replace("name: shop", "name: own").replace("[clean, totals]", "{mine_alone: clean}")
    )
    assert await asking.rows("SELECT * FROM mine_alone", of=other_pipelines)
    with pytest.raises(QueryRefused, match="there is no published dataset"):
        await asking.ask("SELECT * FROM mine_alone")
    assert len(await asking.log()) == 2
    assert [one.outcome for one in await asking.log(other_pipelines)] == ["answered", "answered"]


async def asker(pipelines: TestedPipelines, email: str | None, role: str = "reader") -> Asker:
    """Make a token, of a person if one is named, and return whoever shows it."""
    tokens = ApiTokens(pipelines.runtime.database)
    _, info = await tokens.create(pipelines.scope, email or "nobody", role, user=email)  # type: ignore[arg-type]
    return Asker(scope=pipelines.scope, name=f"token/{info.token_id}", admin=role == "admin", token_id=info.token_id)


async def test_a_dataset_of_certain_roles_is_read_by_their_holders_alone(
    asking: Asking, pipelines: TestedPipelines
) -> None:
    """INV-78: a token of nobody, of somebody else and of somebody who is gone read nothing."""
    runtime, scope = pipelines.runtime, pipelines.scope
    people = People(runtime.database, runtime.ledger, runtime.ids.mint, PRODUCER)
    await people.create_role(scope, "analysts", "Analysts")
    await people.create_role(scope, "auditors", "Auditors")
    for email in ("ann@example.org", "bob@example.org"):
        await people.add_user(scope, email)
    await people.grant(scope, "analysts", "ann@example.org")
    ann, bob, nobody = [await asker(pipelines, email) for email in ("ann@example.org", "bob@example.org", None)]
    admin = await asker(pipelines, None, "admin")
    for one in (ann, bob, nobody, admin):
        assert await asking.rows(SUM, asker=one)

    clean = await pipelines.pipelines.datasets.find(scope, "clean")
    with pytest.raises(NotFound, match="there is no role nurses"):
        await asking.readers.grant(scope, clean, "nurses", "tests")
    assert await asking.readers.grant(scope, clean, "analysts", "tests") == ("analysts",)
    assert await asking.readers.grant(scope, clean, "analysts", "tests") == ("analysts",)
    for one in (ann, admin):
        assert await asking.rows(SUM, asker=one)
    for one in (bob, nobody):
        for sql in (SUM, "WITH a AS (SELECT * FROM clean) SELECT 1 FROM a", "SELECT (SELECT count(*) FROM clean) AS n"):
            with pytest.raises(Denied, match="dataset clean is for certain roles"):
                await asking.ask(sql, asker=one)
        assert await asking.rows("SELECT * FROM totals", asker=one)
        with pytest.raises(QueryRefused) as caught:
            await asking.ask("SELECT * FROM cleam", asker=one)
        assert "clean" not in (caught.value.hint or "")
    refused = (await asking.log())[1:4]
    assert {(one.outcome, one.code) for one in refused} <= {
        ("refused", "denied"),
        ("refused", "relation"),
        ("answered", None),
    }

    await people.grant(scope, "auditors", "bob@example.org")
    await asking.readers.grant(scope, clean, "auditors", "tests")
    assert await asking.rows(SUM, asker=bob)
    await people.remove_user(scope, "bob@example.org")
    with pytest.raises(Denied):
        await asking.ask(SUM, asker=bob)
    await asking.readers.revoke(scope, clean, "auditors", "tests")
    with pytest.raises(InputError, match="is the last role"):
        await asking.readers.revoke(scope, clean, "analysts", "tests")
    assert await asking.readers.of(scope, clean) == ("analysts",)
    assert await asking.readers.open_to_all(scope, clean, "tests") == ()
    assert await asking.rows(SUM, asker=nobody)


async def test_every_question_is_recorded_without_its_text(asking: Asking, pipelines: TestedPipelines) -> None:
    """INV-78."""
    answered = await asking.ask("SELECT * FROM clean WHERE day <> 'pa55word'", asker=await asker(pipelines, None))
    failed = "SELECT nope FROM clean WHERE day = 'pa55word'"
    refused = "SELECT getenv('pa55word')"
    with pytest.raises(QueryFailed, match="nope"):
        await asking.ask(failed)
    with pytest.raises(QueryRefused):
        await asking.ask(refused)
    with pytest.raises(QueryTimedOut):
        await asking.ask(ENDLESS, seconds=0.3)
    timed_out, third, second, first = await asking.log()
    assert (first.outcome, first.code, first.rows) == ("answered", None, 2)
    assert (first.query_id, first.mark) == (str(answered.query_id), answered.mark.token())
    assert (first.datasets, first.bytes) == (answered.datasets, answered.table.nbytes)
    assert first.token_id is not None
    assert first.milliseconds > 0
    assert (second.outcome, second.code, second.sql_sha256) == ("failed", "query_failed", digest(failed))
    assert [one.name for one in second.datasets] == ["clean"]
    assert (third.outcome, third.code, third.datasets) == ("refused", "function", ())
    assert (third.sql_sha256, third.mark, third.token_id) == (digest(refused), None, None)
    assert (timed_out.outcome, timed_out.code) == ("failed", "query_timed_out")
    kept = await pipelines.fetch(
        "SELECT row_to_json(e)::text AS said FROM noetl.event AS e WHERE starts_with(stream_id, 'query/')"
    )
    assert len(kept) == 8
    assert not any("pa55word" in row["said"] for row in kept)


async def test_a_question_keeps_no_month_of_the_ledger_open(asking: Asking, pipelines: TestedPipelines) -> None:
    await asking.ask("SELECT 1 AS one")
    with pytest.raises(QueryRefused):
        await asking.ask("SELECT nope()")
    ids = [int(one.query_id) for one in await asking.log()]
    async with pipelines.runtime.database.transaction(None, "retention") as connection:
        row = await connection.fetchrow(_OPEN, min(ids), max(ids) + 1, sorted(ENDING))
    assert row is not None
    assert row["executions"] == 0


async def test_more_rows_than_the_limit_are_cut_and_said_so(asking: Asking) -> None:
    cut = await asking.ask("SELECT * FROM range(50)", rows=10)
    assert (cut.table.num_rows, cut.truncated, cut.limit) == (10, True, 10)
    whole = await asking.ask("SELECT * FROM range(10)", rows=10)
    assert (whole.table.num_rows, whole.truncated) == (10, False)
    none = await asking.ask("SELECT * FROM range(10)", rows=0)
    assert (none.table.num_rows, none.truncated) == (0, True)
    for bounds in ({"rows": 10**9}, {"rows": -1}, {"seconds": 0}, {"seconds": 10**6}):
        with pytest.raises(InputError):
            await asking.ask("SELECT 1", **bounds)


async def test_an_organization_asks_only_so_many_at_a_time(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    async with open_asking(pipelines, Limits(concurrent=1)) as asking:
        endless = asyncio.create_task(asking.ask(ENDLESS, seconds=60))
        await asyncio.sleep(0)
        assert asking.queries.running(pipelines.scope) == 1
        with pytest.raises(QueriesBusy):
            await asking.ask("SELECT 1 AS one")
        assert await asking.rows("SELECT 1 AS one", of=other_pipelines) == [{"one": 1}]
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert await asking.rows("SELECT 1 AS one") == [{"one": 1}]
        said = {(one.outcome, one.code) for one in await asking.log()}
        assert said == {("answered", None), ("failed", "cancelled"), ("refused", "queries_busy")}


async def test_a_dataset_with_nothing_in_it_yet_says_so(asking: Asking, pipelines: TestedPipelines) -> None:
    pipelines.give("rows")
    empty = "name: empty\njobs: [{name: rows, operator: made, runtime: dispatcher}]\npublish: {nothing_yet: rows}"
    await pipelines.deploy(empty)
    with pytest.raises(NotFound, match="nothing_yet has no columns yet"):
        await asking.ask("SELECT * FROM nothing_yet")


async def test_a_point_that_is_not_kept_says_from_when_on_it_is(
    asking: Asking, pipelines: TestedPipelines, owner_url: str
) -> None:
    import asyncpg

    before = await asking.ask(SUM)
    gone: Any = before.datasets[0]
    await pipelines.deploy(shop(factor=2))
    admin = await asyncpg.connect(owner_url)
    try:
        await admin.execute(
            "SELECT set_config('noetl.tenant', $1, false), set_config('noetl.organization', $2, false)",
            pipelines.scope.tenant_id, pipelines.scope.organization_id,
        )  # fmt: skip
        values = (pipelines.scope.tenant_id, pipelines.scope.organization_id, gone.dataset_version, gone.dataset_uuid)
        await admin.execute(
            "INSERT INTO noetl.retired_generation (tenant_id, organization_id, dataset_version, dataset_uuid, generation,"
            " reason, served_until, retired_at, purged_at) VALUES ($1, $2, $3, $4, $3, 'old', '2030-01-02Z', now(), now())",
            *values,
        )
        with pytest.raises(HistoryNotKept, match="retained from 2030-01-02"):
            await asking.ask(SUM, before.mark)
        await admin.execute("DELETE FROM noetl.retired_generation")
    finally:
        await admin.close()
    assert await asking.rows(SUM, before.mark) == before.table.to_pylist()
