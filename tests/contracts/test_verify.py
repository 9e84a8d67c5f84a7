"""Verification over PostgreSQL: clean when all is well, and naming row, field and values when anything was changed."""

from __future__ import annotations

import time
from typing import Any

import asyncpg
import pytest

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.replay import compare
from noetl.kernel.replay.report import Difference, VerifyReport
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import Run, framed_run

pytestmark = pytest.mark.service

SCOPE = Scope("acme", "care")
NEIGHBOUR = Scope("globex", "care")
IDS = SnowflakeGenerator(23, lambda: time.time_ns() // 1_000_000)


@pytest.fixture
def drafts() -> Drafts:
    return Drafts(SCOPE, IDS.mint)


@pytest.fixture
def found(database: Database, ledger: PostgresLedger) -> Projections:
    return connect(database, ledger)


@pytest.fixture
async def run(ledger: PostgresLedger, drafts: Drafts, found: Projections) -> Run:
    run = await framed_run(ledger, drafts)
    await found.project()
    return run


async def damage(owner_url: str, statement: str, *values: Any) -> None:
    """Change rows behind the product's back, as only a superuser can."""
    connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    try:
        status = await connection.execute(statement, *values)
    finally:
        await connection.close()
    assert not status.endswith(" 0"), f"nothing was changed by {statement}"


def only(report: VerifyReport) -> Difference:
    assert len(report.differences) == 1, report.differences
    return report.differences[0]


async def test_an_untouched_organization_is_clean(found: Projections, run: Run) -> None:
    report = await found.verifier.verify(SCOPE)
    assert report.clean
    assert (report.events, report.lag) == (len(run.drafts), 0)
    assert {part.projection: part.expected_rows for part in report.projections} == {
        "execution": 1,
        "stage": 1,
        "frame": 3,
        "loop": 1,
    }
    assert all(part.equal and part.expected == part.found for part in report.projections)
    assert await found.verifier.shards() == []


async def test_one_execution_is_verified_alone(found: Projections, run: Run, ledger: PostgresLedger) -> None:
    await framed_run(ledger, Drafts(SCOPE, IDS.mint))
    report = await found.verifier.verify(SCOPE, run.execution_id)
    assert (report.clean, report.events, report.execution_id) == (True, len(run.drafts), run.execution_id)


async def test_what_is_not_projected_yet_is_lag_and_no_difference(
    found: Projections, run: Run, ledger: PostgresLedger, drafts: Drafts
) -> None:
    late = drafts.execution(run.execution_id, "step.exited", node_name="each")
    await ledger.append(late.stream, [late])
    report = await found.verifier.verify(SCOPE)
    assert (report.clean, report.lag) == (True, 1)


async def test_an_unknown_execution_is_not_found(found: Projections, run: Run) -> None:
    with pytest.raises(NotFound):
        await found.verifier.verify(SCOPE, 5)


@pytest.mark.no_parity
async def test_a_changed_field_is_named_with_both_values(found: Projections, run: Run, owner_url: str) -> None:
    await damage(
        owner_url,
        "UPDATE noetl.projection SET state = replace(state::text, '\"done\":30', '\"done\":31')::json"
        " WHERE projection = 'loop'",
    )
    report = await found.verifier.verify(SCOPE)
    stored, row = report.differences
    assert (stored.where, stored.field) == ("loop", "checksum")
    assert (row.where, row.field, row.expected, row.found) == ("loop", "row.done", 30, 31)
    assert row.id.startswith(f"{run.execution_id}/")
    assert "loop" in row.sentence()
    assert "should be 30 and is 31" in row.sentence()
    assert [part.projection for part in report.projections if not part.equal] == ["loop"]


@pytest.mark.no_parity
async def test_a_wrong_stored_checksum_is_found_though_the_row_is_right(
    found: Projections, run: Run, owner_url: str
) -> None:
    await damage(owner_url, "UPDATE noetl.projection SET checksum = repeat('0', 64) WHERE projection = 'stage'")
    difference = only(await found.verifier.verify(SCOPE))
    assert (difference.where, difference.field, difference.found) == ("stage", "checksum", "0" * 64)


@pytest.mark.no_parity
async def test_a_missing_row_is_named(found: Projections, run: Run, owner_url: str) -> None:
    frame = str(run.drafts[-4].frame_id)
    await damage(owner_url, "DELETE FROM noetl.projection WHERE row_id LIKE '%' || $1", frame)
    difference = only(await found.verifier.verify(SCOPE, run.execution_id))
    assert (difference.where, difference.field, difference.found) == ("frame", "row", None)
    assert difference.id == f"{run.execution_id}/{frame}"


@pytest.mark.no_parity
async def test_a_row_nobody_folded_is_named(found: Projections, run: Run, owner_url: str) -> None:
    await damage(owner_url, "UPDATE noetl.projection SET row_id = row_id || '0' WHERE projection = 'stage'")
    report = await found.verifier.verify(SCOPE)
    rows = [difference for difference in report.differences if difference.field == "row"]
    assert [(difference.expected is None, difference.found is None) for difference in rows] == [
        (False, True),
        (True, False),
    ]


@pytest.mark.no_parity
async def test_a_wrong_lineage_is_named(found: Projections, run: Run, owner_url: str) -> None:
    await damage(owner_url, "UPDATE noetl.projection SET last_position = 2 WHERE projection = 'loop'")
    difference = only(await found.verifier.verify(SCOPE))
    assert (difference.field, difference.found) == ("last_position", 2)


@pytest.mark.no_parity
async def test_a_changed_event_shows_in_the_rows_made_from_it(found: Projections, run: Run, owner_url: str) -> None:
    await damage(
        owner_url,
        'UPDATE noetl.event SET meta = \'{"attempt":1,"row_count":11}\' WHERE event_id = $1',
        run.drafts[-4].event_id,
    )
    report = await found.verifier.verify(SCOPE)
    assert ("frame", "row.row_count", 11, 10) in {
        (difference.where, difference.field, difference.expected, difference.found) for difference in report.differences
    }


@pytest.mark.no_parity
async def test_a_lost_event_is_a_gap_in_its_stream_and_its_shard(found: Projections, run: Run, owner_url: str) -> None:
    await damage(owner_url, "DELETE FROM noetl.event WHERE event_id = $1", run.drafts[4].event_id)
    report = await found.verifier.verify(SCOPE)
    gap = next(difference for difference in report.differences if difference.where == "stream")
    assert gap.id == run.drafts[4].stream_id
    shard = await found.verifier.shards()
    assert [(difference.id, difference.field) for difference in shard] == [(str(run.shard), "events")]


@pytest.mark.no_parity
async def test_a_stream_head_that_ran_ahead_is_named(found: Projections, run: Run, owner_url: str) -> None:
    stream_id = run.drafts[0].stream_id
    await damage(owner_url, "UPDATE noetl.stream SET version = version + 1 WHERE stream_id = $1", stream_id)
    for execution_id in (None, run.execution_id):
        difference = only(await found.verifier.verify(SCOPE, execution_id))
        assert (difference.where, difference.id, difference.field) == ("stream", stream_id, "version")
        assert difference.found == difference.expected + 1


@pytest.mark.no_parity
async def test_a_shard_head_that_ran_ahead_is_named(found: Projections, run: Run, owner_url: str) -> None:
    await damage(owner_url, "UPDATE noetl.shard SET position = position + 5 WHERE shard = $1", run.shard)
    (difference,) = await found.verifier.shards()
    assert (difference.id, difference.field, difference.found) == (str(run.shard), "position", run.positions[-1] + 5)


@pytest.mark.no_parity
async def test_a_key_that_points_to_another_event_is_named(found: Projections, run: Run, owner_url: str) -> None:
    key = run.drafts[0].idempotency_key
    await damage(
        owner_url,
        "UPDATE noetl.idempotency_key SET event_id = $1 WHERE key = $2",
        run.drafts[1].event_id,
        key,
    )
    difference = only(await found.verifier.verify(SCOPE, run.execution_id))
    assert (difference.where, difference.id) == ("idempotency_key", key)


async def test_a_refused_append_leaves_nothing_to_complain_about(
    found: Projections, run: Run, ledger: PostgresLedger, drafts: Drafts
) -> None:
    from noetl.errors import VersionConflict

    refused = drafts.execution(drafts.mint())
    with pytest.raises(VersionConflict):
        await ledger.append(refused.stream, [refused], expected_version=4)
    assert (await found.verifier.verify(SCOPE)).clean


async def test_payloads_are_proven_without_keys_on_request(
    found: Projections, ledger: PostgresLedger, drafts: Drafts
) -> None:
    kept = await found.payloads.store(SCOPE, b"{}", "application/json")
    execution_id = drafts.mint()
    for ref in (kept, kept, drafts.payload("cd" * 32)):
        draft = drafts.execution(execution_id, "step.entered", node_name="s", payload_ref=ref)
        await ledger.append(draft.stream, [draft])
    await found.project()
    assert (await found.verifier.verify(SCOPE)).clean
    report = await found.verifier.verify(SCOPE, check_payloads=True)
    difference = only(report)
    assert report.payloads == 2
    assert (difference.where, difference.id) == ("payload", "cd" * 32)


@pytest.mark.no_parity
async def test_many_differences_are_found_in_a_second_pass_that_is_bounded(
    found: Projections, run: Run, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "LOOKED_INTO", 1)
    await damage(owner_url, "DELETE FROM noetl.projection")
    report = await found.verifier.verify(SCOPE)
    assert [part.found_rows for part in report.projections] == [0, 0, 0, 0]
    assert len([difference for difference in report.differences if difference.field == "row"]) == 1


async def test_every_organization_is_found(found: Projections, run: Run, ledger: PostgresLedger) -> None:
    await framed_run(ledger, Drafts(NEIGHBOUR, IDS.mint), 1)
    assert await found.verifier.scopes() == [SCOPE, NEIGHBOUR]


async def test_progress_is_told(found: Projections, run: Run) -> None:
    told: list[int] = []
    await found.verifier.verify(SCOPE, progress=told.append)
    assert sum(told) == len(run.drafts)
