"""Versions of playbooks: immutable, dense, one per source, whoever registers at the same time."""

from __future__ import annotations

import asyncio
import time

import pytest

from noetl.engine.catalog.plan_cache import Plans
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import PRODUCER

SCOPE = Scope("acme", "care")
IDS = SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000)


def source(number: int) -> str:
    return (
        f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: n, path: demo/n}}\nworkload: {{n: {number}}}\n"
        "workflow: [{step: a, tool: {kind: noop}}]\n"
    )


async def test_concurrent_registrations_of_one_path_each_get_a_version_of_their_own(
    database: Database, ledger: PostgresLedger
) -> None:
    """INV-43."""
    payloads = MemoryPayloadStore()
    catalogs = [Catalog(PostgresEntries(database, ledger), payloads, IDS.mint, PRODUCER) for _ in range(3)]
    found = await asyncio.gather(*(catalogs[number % 3].register(SCOPE, source(number)) for number in range(20)))
    again = await asyncio.gather(*(catalogs[number % 3].register(SCOPE, source(number)) for number in range(20)))

    assert sorted(one.entry.version for one in found) == list(range(1, 21))
    assert all(one.created for one in found)
    assert not any(one.created for one in again)
    assert [one.entry.catalog_id for one in again] == [one.entry.catalog_id for one in found]
    for number, one in enumerate(found):
        stands = await catalogs[0].by_id(SCOPE, one.entry.catalog_id)
        assert stands.content == source(number)
        plan = await catalogs[number % 3].plan(SCOPE, one.entry.catalog_id)
        assert plan.playbook.workload == {"n": number}


async def test_a_playbook_that_was_read_once_is_planned_as_it_was_read(
    database: Database, ledger: PostgresLedger
) -> None:
    shared, payloads = Plans(), MemoryPayloadStore()
    people, workers = (
        Catalog(PostgresEntries(database, ledger), payloads, IDS.mint, PRODUCER, shared) for _ in range(2)
    )
    checked = CheckedPlaybook(source(1))
    made = await people.register_checked(SCOPE, checked)
    again = CheckedPlaybook(source(1))
    stands = await people.register_checked(SCOPE, again)

    assert (made.created, stands.created, stands.entry.content) == (True, False, checked.text)
    for catalog in (people, workers):
        assert (await catalog.plan(SCOPE, made.entry.catalog_id)).playbook is again.playbook


async def test_whoever_asks_for_a_plan_at_the_same_time_gets_the_same_reading(
    database: Database, ledger: PostgresLedger
) -> None:
    payloads = MemoryPayloadStore()
    registering, asked = (Catalog(PostgresEntries(database, ledger), payloads, IDS.mint, PRODUCER) for _ in range(2))
    entry = (await registering.register(SCOPE, source(1))).entry
    found = await asyncio.gather(*(asked.plan(SCOPE, entry.catalog_id) for _ in range(8)))
    assert {id(plan) for plan in found} == {id(found[0])}


async def test_what_was_checked_for_other_kinds_of_tasks_is_refused(database: Database, ledger: PostgresLedger) -> None:
    catalog = Catalog(PostgresEntries(database, ledger), MemoryPayloadStore(), IDS.mint, PRODUCER)
    with pytest.raises(ValueError, match="other kinds of tasks"):
        await catalog.register_checked(SCOPE, CheckedPlaybook(source(1), kinds=frozenset({"acme_tool"})))
    assert await catalog.versions(SCOPE, "demo/n") == []
