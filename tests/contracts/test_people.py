"""People and roles of an organization: each change is an event, repeated ones change nothing, and nobody is shared."""

from __future__ import annotations

import asyncio

import pytest

from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.services.people import People
from noetl.testing.samples.drafts import PRODUCER
from noetl.testing.samples.executions import IDS, NEIGHBOUR, SCOPE

from .work_tables import rows

pytestmark = pytest.mark.service


@pytest.fixture
def people(database: Database, ledger: PostgresLedger) -> People:
    return People(database, ledger, IDS.mint, PRODUCER)


async def told(database: Database) -> int:
    (found,) = await rows(database, "stream", "max(version)")
    return int(found[0] or 0)


async def test_people_are_added_given_roles_and_removed(people: People, database: Database) -> None:
    await people.name_org(SCOPE, "Care", "Acme Health")
    added = await people.add_user(SCOPE, "ann@example.org", "writer", "ext-1")
    assert (added.email, added.role, added.external_id, added.roles) == ("ann@example.org", "writer", "ext-1", ())
    readers = await people.create_role(SCOPE, "readers", "Readers")
    await people.create_role(SCOPE, "analysts", "Analysts")
    await people.grant(SCOPE, "readers", "ann@example.org")
    await people.grant(SCOPE, "analysts", "ann@example.org")
    assert (await people.user(SCOPE, "ann@example.org")).roles == ("analysts", "readers")
    await people.revoke(SCOPE, "readers", "ann@example.org")
    assert [(one.email, one.roles) for one in await people.users(SCOPE)] == [("ann@example.org", ("analysts",))]
    assert [role.slug for role in await people.roles(SCOPE)] == ["analysts", "readers"]
    assert readers in await people.roles(SCOPE)
    assert (await people.add_user(SCOPE, "ann@example.org", "admin")).role == "admin"
    await people.remove_user(SCOPE, "ann@example.org")
    assert await people.users(SCOPE) == await rows(database, "org_role_membership") == []
    assert await rows(database, "org", "name") == [("Care",)]
    assert await rows(database, "tenant") == [(SCOPE.tenant_id, "Acme Health")]


async def test_what_stands_already_is_not_said_again(people: People, database: Database) -> None:
    for _ in range(2):
        await people.name_org(SCOPE, "Care")
        await people.add_user(SCOPE, "ann@example.org")
        await people.create_role(SCOPE, "readers", "Readers")
        await people.grant(SCOPE, "readers", "ann@example.org")
    await people.revoke(SCOPE, "readers", "ann@example.org")
    await people.revoke(SCOPE, "readers", "ann@example.org")
    assert await told(database) == 5


async def test_concurrent_changes_all_stand(people: People) -> None:
    emails = [f"user-{number}@example.org" for number in range(8)]
    await asyncio.gather(*(people.add_user(SCOPE, email) for email in emails))
    assert [user.email for user in await people.users(SCOPE)] == emails


async def test_who_is_not_there_is_named(people: People) -> None:
    with pytest.raises(NotFound, match="nobody with the email ann@"):
        await people.remove_user(SCOPE, "ann@example.org")
    await people.add_user(SCOPE, "ann@example.org")
    with pytest.raises(NotFound, match="readers"):
        await people.grant(SCOPE, "readers", "ann@example.org")
    with pytest.raises(InputError):
        await people.create_role(SCOPE, "", "Nobody")


async def test_organizations_do_not_share_people(people: People) -> None:
    """INV-22."""
    await people.add_user(SCOPE, "ann@example.org", "admin")
    await people.add_user(NEIGHBOUR, "ann@example.org")
    assert (await people.user(SCOPE, "ann@example.org")).role == "admin"
    assert [one.role for one in await people.users(NEIGHBOUR)] == ["reader"]
