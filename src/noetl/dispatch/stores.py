"""What an engine stands on beside its ledger and its payloads, in PostgreSQL or in memory."""

from __future__ import annotations

from dataclasses import dataclass

from noetl.catalog.memory_playbooks import MemoryEntries
from noetl.catalog.playbook_rows import PostgresEntries
from noetl.catalog.playbooks import CatalogEntries
from noetl.dispatch.facts.memory import MemoryFacts
from noetl.dispatch.facts.port import Facts
from noetl.dispatch.facts.postgres import PostgresFacts
from noetl.dispatch.open_executions.memory import MemoryOpenExecutions
from noetl.dispatch.open_executions.port import OpenExecutions
from noetl.dispatch.open_executions.postgres import PostgresOpenExecutions
from noetl.dispatch.open_work.memory import MemoryOpenWork
from noetl.dispatch.open_work.port import OpenWork
from noetl.dispatch.open_work.postgres import PostgresOpenWork
from noetl.ledger.database import Database
from noetl.ledger.decisions import RowDecisions
from noetl.ledger.memory_work import MemoryWork
from noetl.ledger.port import Ledger


@dataclass(frozen=True)
class EngineStores:
    """Where an engine finds playbooks, open work, open executions and recorded facts."""

    entries: CatalogEntries
    work: OpenWork
    running: OpenExecutions
    facts: Facts


def postgres_stores(database: Database, ledger: RowDecisions) -> EngineStores:
    """Return the stores in a database."""
    return EngineStores(
        PostgresEntries(database, ledger),
        PostgresOpenWork(database),
        PostgresOpenExecutions(database),
        PostgresFacts(database),
    )


def memory_stores(work: MemoryWork, ledger: Ledger) -> EngineStores:
    """Return the stores over a ledger in memory."""
    return EngineStores(
        MemoryEntries(ledger), MemoryOpenWork(work), MemoryOpenExecutions(work, ledger), MemoryFacts(ledger)
    )
