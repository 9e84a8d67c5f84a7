"""Snapshots in PostgreSQL: taken, used, passed over when they are not sound, and never needed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.envelope import FIELDS
from noetl.kernel.payloads.keys import MemoryTenantKeys
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.as_of import AsOf
from noetl.kernel.replay.pages import MerkleRange
from noetl.kernel.replay.snapshots import MEDIA_TYPE
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import Run, framed_run

pytestmark = pytest.mark.service

SCOPE = Scope("acme", "care")
IDS = SnowflakeGenerator(22, lambda: time.time_ns() // 1_000_000)


@pytest.fixture
def drafts() -> Drafts:
    return Drafts(SCOPE, IDS.mint)


@pytest.fixture
def found(database: Database, ledger: PostgresLedger) -> Projections:
    return connect(database, ledger, snapshot_interval=8)


def sealed(directory: Path, keys: MemoryTenantKeys) -> PayloadStore:
    return open_object_store(Connection(backend="local", path=directory), keys=keys)


@pytest.fixture
async def run(ledger: PostgresLedger, drafts: Drafts) -> Run:
    return await framed_run(ledger, drafts)


async def test_a_snapshot_says_all_that_is_needed_to_trust_it(found: Projections, run: Run) -> None:
    cut = run.positions[6]
    snapshot = await found.replay.snapshots.take(SCOPE, run.execution_id, cut)
    assert snapshot.version == cut
    assert snapshot.fold_versions == {"execution": 1, "stage": 1, "frame": 1, "loop": 1, "fanout": 1}
    assert snapshot.upcaster_digest == Upcasters().digest()
    assert snapshot.payload_root == MerkleRange().root()
    assert snapshot.encryption_context == "none"
    assert snapshot.payload_ref.media_type == MEDIA_TYPE
    folded = await found.replay.state(
        SCOPE, run.execution_id, as_of=AsOf(position=cut), projection="all", use_snapshots=False
    )
    assert snapshot.checksum == folded.checksum


async def test_a_replay_from_a_snapshot_folds_only_the_rest_and_gives_the_same(found: Projections, run: Run) -> None:
    await found.replay.snapshots.take(SCOPE, run.execution_id, run.positions[9])
    for projection in ("execution", "stage", "loop", "fanout"):
        short = await found.replay.state(SCOPE, run.execution_id, projection=projection)
        full = await found.replay.state(SCOPE, run.execution_id, projection=projection, use_snapshots=False)
        assert (short.snapshot, short.events) == (run.positions[9], len(run.positions) - 10)
        assert (short.rows, short.checksums, short.checksum) == (full.rows, full.checksums, full.checksum)


async def test_rows_of_ended_frames_are_folded_from_the_first_event(found: Projections, run: Run) -> None:
    await found.replay.snapshots.take(SCOPE, run.execution_id)
    state = await found.replay.state(SCOPE, run.execution_id, projection="all")
    assert (state.snapshot, len(state.rows["frame"])) == (None, 3)
    kept = await found.replay.state(SCOPE, run.execution_id, projection="all", rows="kept")
    assert (kept.snapshot, kept.rows["frame"], kept.checksum) == (run.positions[-1], [], state.checksum)


async def test_a_snapshot_after_the_cut_is_not_used(found: Projections, run: Run) -> None:
    await found.replay.snapshots.take(SCOPE, run.execution_id)
    state = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(position=run.positions[5]))
    assert state.snapshot is None


async def test_taking_again_without_news_changes_nothing(found: Projections, run: Run) -> None:
    first = await found.replay.snapshots.take(SCOPE, run.execution_id)
    again = await found.replay.snapshots.take(SCOPE, run.execution_id)
    assert (again.version, again.payload_ref) == (first.version, first.payload_ref)


async def test_only_the_newest_three_are_kept(found: Projections, run: Run) -> None:
    for position in run.positions[3:9]:
        await found.replay.snapshots.take(SCOPE, run.execution_id, position)
    kept = await found.store.load_snapshots(SCOPE, "execution", str(run.execution_id))
    assert [snapshot.version for snapshot in kept] == [*reversed(run.positions[6:9])]


async def test_an_execution_without_events_has_no_snapshot(found: Projections) -> None:
    with pytest.raises(NotFound):
        await found.replay.snapshots.take(SCOPE, 5)


async def test_damaged_bytes_are_passed_over_for_the_next_older_snapshot(
    found: Projections, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    await found.replay.snapshots.take(SCOPE, run.execution_id, run.positions[5])
    newest = await found.replay.snapshots.take(SCOPE, run.execution_id, run.positions[9])
    await found.payloads.delete(SCOPE, newest.payload_ref.sha256)
    state = await found.replay.state(SCOPE, run.execution_id)
    assert state.snapshot == run.positions[5]
    assert len(state.warnings) == 1
    assert f"position {run.positions[9]} is not used" in state.warnings[0]
    assert state.warnings[0] in caplog.text


@pytest.mark.no_parity
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fold_versions": json.dumps({"execution": 2})}, "other folds"),
        ({"upcaster_digest": "00" * 32}, "other upcasters"),
        ({"checksum": "00" * 32}, "recorded checksum"),
        ({"payload_root": "00" * 32}, "recorded root"),
    ],
)
async def test_a_snapshot_whose_record_does_not_fit_is_passed_over(
    found: Projections, run: Run, database: Database, change: dict[str, str], why: str
) -> None:
    full = await found.replay.state(SCOPE, run.execution_id, use_snapshots=False)
    await found.replay.snapshots.take(SCOPE, run.execution_id)
    (column, value), cast = *change.items(), "::json" if "fold_versions" in change else ""
    async with database.transaction(None, "projector") as connection:
        await connection.execute(f"UPDATE noetl.snapshot SET {column} = $1{cast}", value)
    state = await found.replay.state(SCOPE, run.execution_id)
    assert state.snapshot is None
    assert why in state.warnings[0]
    assert (state.rows, state.checksum) == (full.rows, full.checksum)


async def test_the_payload_root_covers_every_digest_in_order(
    found: Projections, ledger: PostgresLedger, drafts: Drafts
) -> None:
    run, stage, frame = drafts.mint(), drafts.mint(), drafts.mint()
    first = drafts.payload("01" * 32)
    second = await found.payloads.store(SCOPE, b'{"context":{"note":"long"}}', FIELDS)
    steps = [
        drafts.execution(run, fields_ref=second),
        drafts.frame(run, stage, frame, payload_ref=first, fields_ref=second),
    ]
    for step in steps:
        await ledger.append(step.stream, [step])
    wanted = MerkleRange()
    for ref in (second, first, second):
        wanted.add(ref.sha256)
    assert (await found.replay.snapshots.take(SCOPE, run)).payload_root == wanted.root()


async def test_a_snapshot_under_a_tenants_key_names_it_and_is_passed_over_once_the_key_is_gone(
    database: Database, ledger: PostgresLedger, run: Run, tmp_path: Path
) -> None:
    keys = MemoryTenantKeys()
    found = connect(database, ledger, payloads=sealed(tmp_path, keys))
    snapshot = await found.replay.snapshots.take(SCOPE, run.execution_id)
    assert snapshot.encryption_context.startswith("tenant/acme/")
    keys.destroy("acme")
    state = await found.replay.state(SCOPE, run.execution_id)
    assert state.snapshot is None
    assert "was destroyed" in state.warnings[0]


async def test_the_projector_takes_snapshots_as_executions_grow(
    found: Projections, ledger: PostgresLedger, drafts: Drafts
) -> None:
    long, short = await framed_run(ledger, drafts, 4), await framed_run(ledger, drafts, 0, ended=False)
    await found.project()
    assert await found.store.load_snapshots(SCOPE, "execution", str(long.execution_id))
    assert not await found.store.load_snapshots(SCOPE, "execution", str(short.execution_id))


async def test_a_projector_that_joins_in_the_middle_counts_what_was_before(
    found: Projections, database: Database, ledger: PostgresLedger, drafts: Drafts
) -> None:
    run = await framed_run(ledger, drafts, 0, ended=False)
    await found.project()
    more = [drafts.execution(run.execution_id, "step.entered", node_name="s") for _ in range(4)]
    for draft in more:
        await ledger.append(draft.stream, [draft])
    await connect(database, ledger, payloads=found.payloads, snapshot_interval=8).project()
    kept = await found.store.load_snapshots(SCOPE, "execution", str(run.execution_id))
    assert [snapshot.version for snapshot in kept] == [run.positions[-1] + 4]


async def test_a_snapshot_that_cannot_be_taken_does_not_stop_the_projector(
    database: Database, ledger: PostgresLedger, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = MemoryTenantKeys()
    keys.destroy("acme")
    found = connect(database, ledger, payloads=sealed(tmp_path, keys), snapshot_interval=4)
    await found.project()
    assert await found.store.checkpoints() == await ledger.head()
    assert "no snapshot of execution" in caplog.text
