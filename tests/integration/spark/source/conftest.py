"""A ledger of two tenants to read from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.spark.source.read_without_spark import BOOKS, CARE, MINT

from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.stream import Scope
from noetl.spark.source.options import source_options
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run


@pytest.fixture
async def runs(ledger: PostgresLedger) -> dict[Scope, list[int]]:
    """The ids of four executions of one organization and two of another."""
    told: dict[Scope, list[int]] = {CARE: [], BOOKS: []}
    for scope in (CARE, BOOKS, CARE, CARE, BOOKS, CARE):
        told[scope].append((await framed_run(ledger, Drafts(scope, MINT))).execution_id)
    return told


@pytest.fixture
def options(owner_url: str) -> Callable[..., dict[str, str]]:
    """Options for reading an organization of the test's ledger."""

    def made(scope: Scope | None = CARE, **more: str) -> dict[str, str]:
        return source_options(scope, {"database_url": owner_url, "as_roles": True}, **more)

    return made
