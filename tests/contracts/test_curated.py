"""Curated views on a real ledger of several tenants: what they tell, what they never tell, and who is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import asyncpg
import pytest
from tests.contracts.many_tenants import IDS, LONER, OPERATORS, SECRETS, TENANTS, add_loner, noon, populate, reads

from noetl import faults
from noetl.errors import InputError, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.event import Event
from noetl.model.stream import Scope
from noetl.services.curated.facts import Fact, identity, number, time
from noetl.services.curated.on_postgres import InPostgres
from noetl.services.curated.reads import Answer, CuratedReads, Reader
from noetl.services.curated.registry import BUILT_IN
from noetl.services.curated.rules import Drop, Hash, Total
from noetl.services.curated.view import CuratedView
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

# All tests here write alike; replay is compared with the rows after the first of them.
written_alike = pytest.mark.no_parity
READER = Reader(OPERATORS, "tests")
ORDERS = CuratedView(
    name="orders",
    sentence="Orders of the same article.",
    fact=Fact(
        "orders",
        ("business.ordered",),
        {"at": time("event_time"), "amount": number("meta.amount"), "article": identity("meta.article_name")},
    ),
    rules={"article": Hash(), "amount": Total(), "at": Drop()},
    count="orders",
)


@pytest.fixture
def now() -> datetime:
    """When views are read."""
    return noon()


@pytest.fixture
async def curated(database: Database, ledger: PostgresLedger, now: datetime) -> AsyncIterator[CuratedReads]:
    """Views over several tenants, built-in ones and one of a user."""
    await populate(ledger, now)
    yield reads(database, ledger, now, ORDERS)
    faults.arm("")


async def records(ledger: PostgresLedger, scope: Scope | None = None) -> list[Event]:
    """Return the events that tell of reads, in every organization."""
    return [one for one in await everything(ledger, scope) if one.event_type == "curated.read"]


async def test_the_built_in_views_tell_of_all_tenants_together(
    curated: CuratedReads, ledger: PostgresLedger, now: datetime
) -> None:
    today, before, month = f"{now:%Y-%m-%d}", f"{now - timedelta(days=1):%Y-%m-%d}", f"{now:%Y-%m}"
    monday = f"{now - timedelta(days=now.weekday()):%Y-%m-%d}"
    found = {view.name: await curated.read(READER, view.name) for view in BUILT_IN}
    assert found["executions_by_day"].columns == ("ended_at", "outcome", "executions", "organizations")
    assert found["executions_by_day"].rows == ((before, "failed", 10, 5), (today, "completed", 20, 5))
    # The six quick ones are too few to tell, and the first of the next smallest groups hides them.
    assert found["durations"].rows == (("10000 to 60000", "failed", 10, 5),)
    assert found["failures_by_kind"].rows == ((monday, "command.failed", "timeout", 10, 5),)
    assert found["failures_in_common"].rows[0][2:] == (10, 5)
    assert found["work_by_size"].columns == ("at", "rows", "commits", "organizations", "bytes")
    assert found["work_by_size"].rows == ((month, "1000 to 100000", 10, 5, 66_000),)
    assert [name for name, answer in found.items() if answer.withheld] == ["durations"]
    await add_loner(ledger, now)
    # The smaller group is withheld now, or the loner's would be what is missing from a sum.
    assert (await curated.read(READER, "executions_by_day")).rows == ((today, "completed", 20, 5),)
    for name in ("failures_by_kind", "failures_in_common", "work_by_size"):
        answer = await curated.read(READER, name)
        assert (answer.rows, answer.withheld) == ((), True), f"what the loner did could be told from {name}"


@written_alike
async def test_no_answer_names_a_tenant_or_what_one_tenant_alone_did(
    curated: CuratedReads, ledger: PostgresLedger, now: datetime
) -> None:
    """INV-102, INV-22."""
    await add_loner(ledger, now)
    for view in BUILT_IN:
        answer = await curated.read(READER, view.name)
        said = json.dumps([answer.columns, answer.rows])
        assert not [word for word in SECRETS if word in said], view.name
        assert not [row for row in answer.rows if "cancelled" in row or "other" in row], "only the loner did that"


@written_alike
async def test_hashes_of_one_installation_are_those_of_no_other(
    curated: CuratedReads, ledger: PostgresLedger, owner_url: str
) -> None:
    """INV-102."""
    for scope in TENANTS:
        drafts = Drafts(scope, IDS.mint)
        for amount in (10, 20, "many"):
            meta = {"amount": amount, "article_name": "a lamp"}
            sold = drafts.business(f"shop/{IDS.mint()}", IDS.mint(), "business.ordered", meta=meta)
            await ledger.append(sold.stream, [sold])
    first, again = await curated.read(READER, "orders"), await curated.read(READER, "orders")
    assert first.rows == again.rows
    ((article, *numbers),) = first.rows
    assert numbers == [20, 5, 180]
    owner = await asyncpg.connect(owner_url)
    await owner.execute("UPDATE noetl.curated_secret SET secret = sha256('another installation')")
    await owner.close()
    ((elsewhere, *_),) = (await curated.read(READER, "orders")).rows
    assert len({article, elsewhere, "a lamp"}) == 3


@written_alike
async def test_each_read_is_an_event_that_says_who_and_what_and_no_value(
    curated: CuratedReads, ledger: PostgresLedger
) -> None:
    """INV-103."""
    answer = await curated.read(READER, "executions_by_day")
    (told,) = await records(ledger)
    assert (told.stream.scope, told.execution_id) == (OPERATORS, answer.read_id)
    said = {
        name: told.meta[name]
        for name in ("view", "version", "definition_sha256", "asked_by", "mark", "rows", "withheld")
    }
    view = answer.view
    assert said == {
        "view": "executions_by_day",
        "version": 1,
        "definition_sha256": view.digest,
        "asked_by": "tests",
        "mark": answer.mark.token(),
        "rows": 2,
        "withheld": False,
    }
    assert "completed" not in json.dumps(told.meta)
    second = await curated.read(READER, "durations")
    assert len(await records(ledger)) == 2
    listed = await curated.record.listed(OPERATORS)
    assert [one.read_id for one in listed] == [str(second.read_id), str(answer.read_id)]
    assert (listed[1].read.view, listed[1].read.rows) == ("executions_by_day", 2)
    assert await curated.record.listed(LONER) == []


@written_alike
async def test_what_cannot_be_read_is_refused_without_a_record(curated: CuratedReads, ledger: PostgresLedger) -> None:
    with pytest.raises(NotFound, match="no curated view 'raw_events'"):
        await curated.read(READER, "raw_events")
    with pytest.raises(InputError, match="no engine spark"):
        await curated.read(READER, "durations", "spark")
    assert await records(ledger) == []


@written_alike
async def test_a_read_that_dies_before_its_record_gives_nothing(
    curated: CuratedReads, ledger: PostgresLedger, database: Database
) -> None:
    """INV-103."""
    faults.arm("curated.before_record=raise")
    given: list[Answer] = []
    with pytest.raises(faults.FaultInjected):
        given.append(await curated.read(READER, "executions_by_day"))
    faults.arm("")
    assert given == []
    assert await records(ledger) == []
    left = await kept(database)
    assert len(left) == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="is not on record, so it gives nothing"):
        await take(database, OPERATORS, left[0])


@written_alike
async def test_a_read_that_dies_after_its_record_is_on_record(
    curated: CuratedReads, ledger: PostgresLedger, database: Database
) -> None:
    """INV-103."""
    faults.arm("curated.after_record=raise")
    with pytest.raises(faults.FaultInjected):
        await curated.read(READER, "executions_by_day")
    faults.arm("")
    assert len(await records(ledger)) == 1
    (read_id,) = await kept(database)
    for other in (*TENANTS, LONER):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="not on record"):
            await take(database, other, read_id)
    assert await take(database, OPERATORS, read_id) is not None
    assert await take(database, OPERATORS, read_id) is None, "each answer is handed out once"


@written_alike
async def test_the_operators_role_can_do_nothing_in_the_database_but_take_answers(
    curated: CuratedReads, database: Database
) -> None:
    """INV-103."""
    await curated.read(READER, "executions_by_day")
    async with database.transaction(OPERATORS, "operator") as connection:
        tables = await connection.fetch(
            "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'noetl'::regnamespace"
            " AND c.relkind IN ('r', 'p', 'v', 'S') AND (has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE')"
            " OR c.relkind <> 'S' AND has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE'))"
        )
        powerful = await connection.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'noetl'::regnamespace AND prosecdef"
            " AND has_function_privilege(oid, 'EXECUTE')"
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM noetl.curated_answer")
    assert [row[0] for row in tables] == []
    assert [row[0] for row in powerful] == ["take_curated_answer"]
    for role in ("runtime", "reaper", "retention"):
        async with database.transaction(OPERATORS, role) as connection:  # type: ignore[arg-type]
            for statement in ("TABLE noetl.curated_secret", "TABLE noetl.curated_answer"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    async with connection.transaction():
                        await connection.fetch(statement)


@written_alike
async def test_a_view_that_takes_too_long_says_so(database: Database, ledger: PostgresLedger, now: datetime) -> None:
    slow = reads(database, ledger, now, engines={"postgres": InPostgres(database, 0.05)})
    owner = await asyncpg.connect(database.url)
    await owner.execute("BEGIN; LOCK TABLE noetl.shard IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(Unavailable, match=r"took longer than 0\.05 seconds"):
        await slow.read(READER, "durations")
    await owner.close()
    assert await records(ledger) == []


async def kept(database: Database) -> list[int]:
    """Return the reads whose answers were not handed out."""
    async with database.transaction(None, "projector") as connection:
        return [row[0] for row in await connection.fetch("SELECT read_id FROM noetl.curated_answer")]


async def take(database: Database, scope: Scope, read_id: int) -> str | None:
    """Take an answer as an operator would."""
    async with database.transaction(scope, "operator") as connection:
        text: str | None = await connection.fetchval(
            "SELECT noetl.take_curated_answer($1, $2, $3)::text", scope.tenant_id, scope.organization_id, read_id
        )
    return text
