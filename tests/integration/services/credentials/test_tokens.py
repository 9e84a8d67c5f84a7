"""API tokens: shown once, kept as a digest, good until they expire or are revoked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from noetl.errors import Denied, InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.credentials.tokens import PREFIX, ApiTokens, digest

pytestmark = pytest.mark.service

ACME, GLOBEX = Scope("acme", "care"), Scope("globex", "care")


@pytest.fixture
def tokens(database: Database) -> ApiTokens:
    """The tokens of the test's database."""
    return ApiTokens(database)


async def test_a_token_says_whose_it_is_before_any_scope_is_known(tokens: ApiTokens) -> None:
    for scope, role in ((ACME, "writer"), (GLOBEX, "worker")):
        secret, info = await tokens.create(scope, "ci", role)  # type: ignore[arg-type]
        holder = await tokens.admit(secret.reveal())
        assert (holder.scope, holder.role, holder.token_id) == (scope, role, info.token_id)


async def test_tokens_are_long_random_and_recognisable(tokens: ApiTokens) -> None:
    made = {(await tokens.create(ACME, "ci", "reader"))[0].reveal() for _ in range(5)}
    assert len(made) == 5
    assert all(token.startswith(PREFIX) and len(token) == len(PREFIX) + 43 for token in made)


async def test_only_a_digest_is_kept(tokens: ApiTokens, owner_url: str) -> None:
    secret, info = await tokens.create(ACME, "ci", "reader")
    with psycopg.connect(owner_url.replace("noetl_owner@", "noetl_admin@")) as admin:
        rows = admin.execute("SELECT t::text FROM noetl.api_token AS t").fetchall()
    shown = f"{rows} {secret!r} {info!r}"
    assert digest(secret.reveal()).hex() in shown
    assert secret.reveal().removeprefix(PREFIX) not in shown
    assert secret.reveal().encode().hex() not in shown


async def test_a_revoked_token_is_denied_at_once(tokens: ApiTokens) -> None:
    secret, info = await tokens.create(ACME, "ci", "reader")
    other, _ = await tokens.create(ACME, "ci", "reader")
    await tokens.admit(secret.reveal())
    revoked = await tokens.revoke(ACME, info.token_id)
    assert revoked.state(datetime.now(UTC)) == "revoked"
    with pytest.raises(Denied, match="unknown, expired or revoked"):
        await tokens.admit(secret.reveal())
    assert await tokens.admit(other.reveal())
    assert (await tokens.revoke(ACME, info.token_id)).revoked_at == revoked.revoked_at


async def test_an_expired_token_is_denied(tokens: ApiTokens, owner_url: str) -> None:
    secret, info = await tokens.create(ACME, "ci", "reader", timedelta(days=1))
    assert info.expires_at is not None
    assert (info.state(info.expires_at - timedelta(seconds=1)), info.state(info.expires_at)) == ("live", "expired")
    assert await tokens.admit(secret.reveal())
    admin = await asyncpg.connect(owner_url.replace("noetl_owner@", "noetl_admin@"))
    await admin.execute("UPDATE noetl.api_token SET expires_at = clock_timestamp()")
    await admin.close()
    with pytest.raises(Denied):
        await tokens.admit(secret.reveal())


@pytest.mark.parametrize("wrong", ["", "noetl_", "noetl_" + "A" * 43, "Bearer x", "\ud800", "ü" * 100_000])
async def test_an_unknown_token_is_denied_without_being_shown(tokens: ApiTokens, wrong: str) -> None:
    await tokens.create(ACME, "ci", "admin")
    with pytest.raises(Denied) as refused:
        await tokens.admit(wrong)
    assert not wrong or wrong not in str(refused.value)


async def test_the_last_use_is_noted_once_a_minute(tokens: ApiTokens, database: Database) -> None:
    secret, _ = await tokens.create(ACME, "ci", "reader")
    assert [one.last_used_at for one in await tokens.list(ACME)] == [None]
    await tokens.admit(secret.reveal())
    first = (await tokens.list(ACME))[0].last_used_at
    assert first is not None
    await tokens.admit(secret.reveal())
    assert (await tokens.list(ACME))[0].last_used_at == first


async def test_tokens_of_another_organization_can_be_neither_seen_nor_revoked(tokens: ApiTokens) -> None:
    secret, info = await tokens.create(ACME, "ci", "reader")
    assert await tokens.list(GLOBEX) == []
    for scope, token_id in ((GLOBEX, info.token_id), (ACME, uuid4())):
        with pytest.raises(NotFound):
            await tokens.revoke(scope, token_id)
    assert await tokens.admit(secret.reveal())


@pytest.mark.parametrize(
    ("name", "role", "expires"), [("ci", "root", None), (" ", "reader", None), ("ci", "reader", timedelta(0))]
)
async def test_a_token_that_makes_no_sense_is_refused(
    tokens: ApiTokens, name: str, role: str, expires: timedelta | None
) -> None:
    with pytest.raises(InputError):
        await tokens.create(ACME, name, role, expires)  # type: ignore[arg-type]
    assert await tokens.list(ACME) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE noetl.api_token SET role = 'admin'",
        "UPDATE noetl.api_token SET expires_at = NULL",
        "UPDATE noetl.api_token SET digest = digest",
        "DELETE FROM noetl.api_token",
    ],
)
async def test_the_runtime_can_only_revoke(tokens: ApiTokens, database: Database, statement: str) -> None:
    await tokens.create(ACME, "ci", "reader")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with database.transaction(ACME) as connection:
            await connection.execute(statement)


async def test_looking_tokens_up_is_for_the_runtime_alone(database: Database) -> None:
    async def ask() -> None:
        async with database.transaction(None, "projector") as connection:
            await connection.fetch("SELECT * FROM noetl.token_scope('')")

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncio.wait_for(ask(), 20)
