"""Epochs: closed with the checkpoint they stand for, by whoever holds the shard, and told once per execution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from noetl.faults import FaultInjected, arm
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.epochs import TELLING, Epochs
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Draft, Event
from noetl.runtime.config import load_settings
from noetl.runtime.projections.checkpoints import tell_epochs
from noetl.runtime.wiring import open_runtime
from noetl.testing.samples.projected_ledger import HOME, a_run, record

pytestmark = pytest.mark.service


class Anybody:
    """A hold that holds everything."""

    async def check(self, connection: Connection, shard: int) -> None:
        """Have no objection."""

    async def moving(self, connection: Connection, shard: int, upto: int, events: Sequence[Event]) -> None:
        """Write nothing."""


def in_one_shard(frames: int = 3) -> list[Draft]:
    """Make the events of an execution without those of other streams."""
    run = a_run(HOME, frames)
    return [draft for draft in run if draft.stream_id.startswith("execution/")]


async def closed(database: Database) -> list[dict[str, Any]]:
    async with database.transaction(None, "projector") as connection:
        rows = await connection.fetch(
            "SELECT shard, epoch, position, executions::text AS executions, told FROM noetl.projection_epoch ORDER BY 1, 2"
        )
    return [dict(row) | {"executions": orjson.loads(row["executions"])} for row in rows]


def projecting(database: Database, ledger: PostgresLedger, epochs: Epochs, batch_events: int = 2_000) -> Projector:
    store = PostgresProjectionStore(database).held_by(epochs)
    return Projector(ledger, store, FoldRegistry(), Upcasters(), batch_events=batch_events)


async def test_an_epoch_closes_with_the_checkpoint_it_stands_for_once_per_interval(
    database: Database, ledger: PostgresLedger
) -> None:
    now = 100.0
    epochs = Epochs(database, Anybody(), 1.0, lambda: now)
    run = in_one_shard()
    shard, named = run[0].stream.shard, ["default", "default", str(run[0].execution_id)]
    await record(ledger, run[:4])
    await projecting(database, ledger, epochs, 2).run_until(await ledger.head())
    (first,) = await closed(database)
    assert (first["shard"], first["epoch"], first["position"], first["executions"]) == (shard, 1, 2, [named])
    await epochs.close(shard)
    assert [one["position"] for one in await closed(database)] == [2, 4], "what is left is closed by the clock"
    await epochs.close(shard)
    assert len(await closed(database)) == 2, "nothing moved"
    now += 1.0
    await record(ledger, run[4:])
    await projecting(database, ledger, epochs).run_until(await ledger.head())
    assert [one["position"] for one in await closed(database)] == [2, 4, len(run)]


async def test_who_takes_a_shard_over_closes_what_was_left_open(database: Database, ledger: PostgresLedger) -> None:
    run, other = in_one_shard(), in_one_shard()
    while other[0].stream.shard != run[0].stream.shard:
        other = in_one_shard()
    shard = run[0].stream.shard
    killed = Epochs(database, Anybody(), 1.0, lambda: 100.0)
    await record(ledger, run)
    await projecting(database, ledger, killed).run_until(await ledger.head())
    await record(ledger, other)
    await projecting(database, ledger, killed).run_until(await ledger.head())
    assert [one["position"] for one in await closed(database)] == [len(run)]

    taking_over = Epochs(database, Anybody(), 1.0)
    taking_over.hold(frozenset({shard}))
    await taking_over.close(shard)
    last = (await closed(database))[-1]
    assert last["position"] == len(run) + len(other) == (await ledger.head()).positions[shard]
    assert last["executions"] == [["default", "default", str(other[0].execution_id)]]


async def test_epochs_are_told_once_and_what_tells_of_them_closes_no_other(
    database: Database, ledger: PostgresLedger, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-122."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)
    run = in_one_shard()
    shard = run[0].stream.shard
    epochs = Epochs(database, Anybody(), 0.0)
    await record(ledger, run)
    await projecting(database, ledger, epochs).run_until(await ledger.head())
    async with open_runtime(load_settings()) as runtime:
        arm("epoch.after_record=raise")
        with pytest.raises(FaultInjected):
            await tell_epochs(runtime)
        arm("")
        assert await tell_epochs(runtime) == 1
        assert await tell_epochs(runtime) == 0
    told = [event async for event in ledger.read_shard(shard) if event.event_type == TELLING]
    assert [(event.execution_id, event.meta) for event in told] == [
        (run[0].execution_id, {"shard": shard, "epoch": 1, "position": len(run)})
    ], "told again after a crash, it stands once"
    await projecting(database, ledger, epochs).run_until(await ledger.head())
    await epochs.close(shard)
    assert [one["epoch"] for one in await closed(database)] == [1]
