"""Curated views over the API: for operators alone, whatever else a caller may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.contracts.many_tenants import noon, populate, reads
from tests.integration.api.conftest import Serve
from tests.integration.api.serving import HOME, Server, running

from noetl import faults
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.event import Event
from noetl.services.credentials.tokens import ROLES
from noetl.testing.contracts.ledger.event_lists import everything

pytestmark = pytest.mark.no_parity

PATHS = ("/api/curated", "/api/curated/executions_by_day")


@pytest.fixture
async def operated(serve: Serve, readers: Database, ledger: PostgresLedger) -> AsyncIterator[Server]:
    """A server on the loopback that asks for no tokens, over several tenants."""
    await populate(ledger, noon())
    async with serve(auth=False, curated=reads(readers, ledger, noon())) as server:
        yield server
    faults.arm("")


async def records(ledger: PostgresLedger) -> list[Event]:
    """Return the events that tell of reads."""
    return [one for one in await everything(ledger, HOME) if one.event_type == "curated.read"]


async def test_only_an_operator_reads_what_is_of_all_tenants(operated: Server, ledger: PostgresLedger) -> None:
    """INV-103, INV-46."""
    tokens = {role: await operated.services.tokens.create(HOME, role, role) for role in ROLES}
    bearers = {role: {"Authorization": f"Bearer {token.reveal()}"} for role, (token, _) in tokens.items()}
    operator = bearers.pop("operator")
    for path in PATHS:
        refused = [await operated.call("GET", path, status=401)]
        refused += [await operated.call("GET", path, headers=headers, status=403) for headers in bearers.values()]
        assert {one["code"] for one in refused} == {"unauthenticated", "denied"}
        assert not [one for one in refused if "rows" in one or "views" in one]
    assert await records(ledger) == []
    listed = (await operated.call("GET", PATHS[0], headers=operator, status=200))["views"]
    assert {one["field"]: one["rule"] for one in listed[0]["rules"]}["playbook"] == "dropped"
    answer = await operated.call("GET", PATHS[1], headers=operator, status=200)
    assert [row[1:] for row in answer["rows"]] == [["failed", 10, 5], ["completed", 20, 5]]
    (told,) = await records(ledger)
    assert (str(told.execution_id), told.meta["token_id"]) == (answer["read_id"], str(tokens["operator"][1].token_id))
    assert await operated.call("GET", "/api/curated/raw", headers=operator, status=404)
    assert await operated.call("GET", f"{PATHS[1]}?engine=abacus", headers=operator, status=400)
    faults.arm("curated.before_record=raise")
    broken = await operated.call("GET", PATHS[1], headers=operator, status=500)
    assert "completed" not in str(broken)
    assert len(await records(ledger)) == 1


async def test_an_operator_reads_nothing_of_an_organization_and_no_admin_makes_one(operated: Server) -> None:
    """INV-103."""
    services = operated.services
    guarded = replace(services, auth_required=True)
    token, _ = await services.tokens.create(HOME, "ops", "operator")
    admin, _ = await services.tokens.create(HOME, "boss", "admin")
    async with running(guarded, operated.projections, auth=True) as server:
        headers = {"Authorization": f"Bearer {token.reveal()}"}
        for path in ("/api/executions", "/metrics", "/api/catalog", "/api/datasets", "/api/tokens", "/api/query/log"):
            await server.call("GET", path, headers=headers, status=403)
        asked = {"name": "me too", "role": "operator"}
        await server.call(
            "POST", "/api/tokens", asked, headers={"Authorization": f"Bearer {admin.reveal()}"}, status=400
        )
