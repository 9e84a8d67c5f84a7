"""Versions of playbooks: immutable, dense, one per source, whoever registers at the same time."""

from __future__ import annotations

import asyncio
import time

from noetl.catalog.playbooks import Catalog
from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.payloads.memory import MemoryPayloadStore

SCOPE = Scope("acme", "care")


def source(number: int) -> str:
    return (
        f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: n, path: demo/n}}\nworkload: {{n: {number}}}\n"
        "workflow: [{step: a, tool: {kind: noop}}]\n"
    )


async def test_concurrent_registrations_of_one_path_each_get_a_version_of_their_own(
    database: Database, ledger: PostgresLedger
) -> None:
    """INV-43."""
    ids = SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000)
    payloads = MemoryPayloadStore()
    catalogs = [Catalog(database, ledger, payloads, ids.mint, "test") for _ in range(3)]
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
