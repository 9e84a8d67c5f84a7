"""What an engine stands on beside its ledger and its payloads, in PostgreSQL or in memory."""

from __future__ import annotations

from dataclasses import dataclass

from noetl.engine.catalog.memory import MemoryEntries
from noetl.engine.catalog.playbooks import CatalogEntries
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.engine.dispatch.facts.memory import MemoryFacts
from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.facts.postgres import PostgresFacts
from noetl.engine.dispatch.open_executions.memory import MemoryOpenExecutions
from noetl.engine.dispatch.open_executions.port import OpenExecutions
from noetl.engine.dispatch.open_executions.postgres import PostgresOpenExecutions
from noetl.engine.dispatch.open_work.memory import MemoryOpenWork
from noetl.engine.dispatch.open_work.port import OpenWork
from noetl.engine.dispatch.open_work.postgres import PostgresOpenWork
from noetl.kernel.ledger.memory_work import MemoryWork
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.decisions import RowDecisions


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
