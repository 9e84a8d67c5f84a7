"""No organization sees anything of another through replay, snapshots or verification."""

from __future__ import annotations

import time

import pytest

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.replay.as_of import AsOf
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import Run, framed_run

pytestmark = pytest.mark.service

OWN, SIBLING, STRANGER = Scope("acme", "care"), Scope("acme", "labs"), Scope("globex", "care")
IDS = SnowflakeGenerator(24, lambda: time.time_ns() // 1_000_000)


@pytest.fixture
def found(database: Database, ledger: PostgresLedger) -> Projections:
    return connect(database, ledger)


@pytest.fixture
async def runs(ledger: PostgresLedger) -> dict[Scope, Run]:
    return {scope: await framed_run(ledger, Drafts(scope, IDS.mint)) for scope in (OWN, SIBLING, STRANGER)}


@pytest.mark.parametrize("other", [SIBLING, STRANGER])
async def test_anothers_execution_does_not_exist(found: Projections, runs: dict[Scope, Run], other: Scope) -> None:
    with pytest.raises(NotFound):
        await found.replay.state(OWN, runs[other].execution_id)
    with pytest.raises(NotFound):
        await found.verifier.verify(OWN, runs[other].execution_id)
    with pytest.raises(NotFound):
        await found.replay.snapshots.take(OWN, runs[other].execution_id)


async def test_an_organization_is_replayed_without_the_others(found: Projections, runs: dict[Scope, Run]) -> None:
    state = await found.replay.state(OWN, projection="all")
    assert [row["id"] for row in state.rows["execution"]] == [str(runs[OWN].execution_id)]
    assert {row["organization_id"] for rows in state.rows.values() for row in rows} == {"care"}
    assert state.events == len(runs[OWN].drafts)


async def test_anothers_event_is_not_found(found: Projections, runs: dict[Scope, Run]) -> None:
    with pytest.raises(NotFound):
        await found.replay.state(OWN, as_of=AsOf(event_id=runs[STRANGER].drafts[3].event_id))


async def test_the_same_execution_id_in_two_organizations_is_two_executions(
    found: Projections, ledger: PostgresLedger
) -> None:
    execution_id = IDS.mint()
    for scope, steps in ((OWN, 1), (STRANGER, 3)):
        drafts = Drafts(scope, IDS.mint)
        for _ in range(steps):
            draft = drafts.execution(execution_id, "step.entered", node_name="s")
            await ledger.append(draft.stream, [draft])
    await found.replay.snapshots.take(STRANGER, execution_id)
    own = await found.replay.state(OWN, execution_id)
    strangers = await found.replay.state(STRANGER, execution_id)
    assert (own.snapshot, own.rows["execution"][0]["row"]["events"]) == (None, 1)
    assert strangers.rows["execution"][0]["row"]["events"] == 3
    assert strangers.snapshot is not None
    assert own.checksum != strangers.checksum


async def test_verification_of_one_organization_counts_only_its_rows(
    found: Projections, runs: dict[Scope, Run]
) -> None:
    await found.project()
    for scope, run in runs.items():
        report = await found.verifier.verify(scope)
        assert report.clean
        assert report.events == len(run.drafts)
        assert {part.projection: part.found_rows for part in report.projections}["execution"] == 1
