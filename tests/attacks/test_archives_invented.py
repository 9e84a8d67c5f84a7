"""Rows that say an archive was removed: they excuse no missing event unless the ledger's own events tell of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.contracts.test_retention import BOOKS, CARE, JANUARY, NOW, PRESENT, Place, append, minting, run_of

from noetl.kernel.ledger.chain.heads import Head, Signer
from noetl.kernel.ledger.chain.notary import Notary
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.replay.chain import ChainCheck, ChainReport
from noetl.model.stream import Scope, execution_stream
from noetl.testing.attacks.ledger_rewriting import CHANGES, INVENT_REMOVAL, REMOVE
from noetl.testing.engines.parity import connect
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.no_parity]


class Attacked:
    """A ledger of two organizations, with a superuser's connection."""

    def __init__(self, database: Database, ledger: PostgresLedger, admin: asyncpg.Connection) -> None:
        self.place, self.trees, self.admin = Place(database, ledger, MemoryPayloadStore()), Trees(database), admin

    async def check(self, scope: Scope | None = None) -> ChainReport:
        return await ChainCheck(self.place.history, self.trees).shards(scope)

    async def remove_archives(self) -> None:
        """Archive and drop what is old, then give the archives up."""
        await self.place.retain()
        await self.place.retain(keep_archive_months=1, now=NOW + timedelta(days=60))


@pytest.fixture
async def attacked(database: Database, ledger: PostgresLedger, owner_url: str) -> AsyncIterator[Attacked]:
    admin = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    yield Attacked(database, ledger, admin)
    await admin.close()


async def test_an_invented_removal_switches_no_check_off(attacked: Attacked) -> None:
    """INV-204."""
    run = run_of(Drafts(CARE, PRESENT.mint))
    await append(attacked.place.ledger, run)
    await attacked.admin.execute(INVENT_REMOVAL)
    assert (await attacked.check()).events == len(run)
    await attacked.admin.execute(CHANGES["its producer"], run[2].event_id)
    for scope in (None, CARE):
        (found,) = (await attacked.check(scope)).differences
        assert found.id.startswith(f"{run[2].event_id} (loop.item) at position 3")
    await attacked.admin.execute(REMOVE, run[2].event_id)
    for scope in (None, CARE):
        report = await attacked.check(scope)
        (found,) = report.differences
        assert (found.where, found.id.split(" ")[0], report.away) == ("position", "3", 0)


async def test_an_invented_removal_is_a_difference_itself(
    attacked: Attacked, database: Database, ledger: PostgresLedger
) -> None:
    """INV-204."""
    await append(attacked.place.ledger, run_of(Drafts(CARE, PRESENT.mint)))
    await attacked.admin.execute(INVENT_REMOVAL)
    found = connect(database, ledger)
    await found.project()
    invented = Scope("nobody", "nothing")
    assert invented in await found.verifier.scopes()
    report = await found.verifier.verify(invented)
    assert [(one.where, one.id) for one in report.differences] == [("event_archive", "event_2020_01")]
    assert report.not_folded is not None


async def test_a_removal_that_is_recorded_excuses_as_many_positions_as_it_tells(
    attacked: Attacked,
) -> None:
    """INV-204."""
    # Of another organization, two runs around a standing one in the same shard.
    old, others = Drafts(CARE, minting(JANUARY)), Drafts(BOOKS, PRESENT.mint)
    first = run_of(old)
    shard = execution_stream(CARE, first[0].execution_id).shard
    stands, last = run_of(others), run_of(old)
    while execution_stream(BOOKS, stands[0].execution_id).shard != shard:
        stands = run_of(others)
    while execution_stream(CARE, last[0].execution_id).shard != shard:
        last = run_of(old)
    for run in (first, stands, last):
        await append(attacked.place.ledger, run)
    await attacked.remove_archives()
    clean = await attacked.check()
    assert (clean.differences, clean.away) == ([], len(first) + len(last))
    for scope in (CARE, BOOKS):
        partly = await attacked.check(scope)
        assert (partly.differences, partly.away) == ([], len(first) + len(last))

    # One event within the bounds of the removed archive: the ledger tells of fewer.
    await attacked.admin.execute(REMOVE, stands[2].event_id)
    for scope in (None, BOOKS):
        (found,) = (await attacked.check(scope)).differences
        assert (found.where, found.field, found.found) == ("positions", "events", len(first) + len(last) + 1)


async def test_an_archive_that_only_a_row_says_was_removed_is_missed(attacked: Attacked) -> None:
    """INV-204."""
    run = run_of(Drafts(CARE, minting(JANUARY)))
    await append(attacked.place.ledger, run)
    await attacked.place.retain()
    assert (await attacked.check()).differences == []
    await attacked.admin.execute("UPDATE noetl.event_archive SET removed_at = now()")
    report = await attacked.check()
    (found,) = report.differences
    assert (found.where, found.id.split(" of ")[0], report.away) == ("position", f"1 to {len(run)}", 0)


async def test_a_removal_that_was_written_later_excuses_nothing(attacked: Attacked) -> None:
    """INV-204: events that tell of a removal count as far as they equal their leaves."""
    run, other = run_of(Drafts(CARE, minting(JANUARY))), run_of(Drafts(BOOKS, PRESENT.mint))
    await append(attacked.place.ledger, run)
    await append(attacked.place.ledger, other)
    await attacked.remove_archives()
    await attacked.admin.execute(
        "UPDATE noetl.event SET meta = jsonb_set(meta::jsonb, '{events}', '99')::json"
        " WHERE event_type = 'partition.archived'"
    )
    report = await attacked.check()
    assert {one.where for one in report.differences} == {"event", "position"}
    assert report.away == 0


async def test_an_execution_is_checked_with_the_links_and_heads_of_its_shard(
    attacked: Attacked, tmp_path: Path
) -> None:
    """INV-204, INV-206."""
    run, other = run_of(Drafts(CARE, PRESENT.mint)), run_of(Drafts(CARE, PRESENT.mint))
    run_id, heads = await append(attacked.place.ledger, run), list[Head]()
    shard = execution_stream(CARE, run_id).shard
    while execution_stream(CARE, other[0].execution_id).shard == shard:
        other = run_of(Drafts(CARE, PRESENT.mint))
    await append(attacked.place.ledger, other)

    async def publish(head: Head) -> None:
        heads.append(head)

    signer = Signer(tmp_path)
    await Notary(attacked.trees, signer, publish, {}).round()
    assert len(heads) == 2

    async def check() -> ChainReport:
        return await ChainCheck(attacked.place.history, attacked.trees, heads, signer.public).execution(CARE, run_id)

    clean = await check()
    assert (clean.differences, clean.events, clean.links, clean.heads) == ([], len(run), len(run), 1)
    heads[:] = [Signer(tmp_path / "other").sign(head) for head in heads]
    (found,) = (await check()).differences
    assert (found.where, found.field) == ("head", "signature")
    heads.clear()
    await attacked.admin.execute("UPDATE noetl.ledger_link SET link = sha256(link) WHERE shard = $1", shard)
    assert {one.where for one in (await check()).differences} == {"link"}
