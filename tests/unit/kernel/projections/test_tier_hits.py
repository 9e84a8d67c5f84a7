"""A projector beside the writers of large events reads their fields from the tiers, and seldom from the durable store."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.lru import ByteLru
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.tiers import TieredPayloads, Tiers
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.projected_ledger import HOME, IDS

NEAR = ("memory", "ipc", "disk")


async def project(writer: TieredPayloads, reader: TieredPayloads) -> None:
    """Record large events with one store, and project them with another."""
    ledger, drafts, run = MemoryLedger(), Drafts(HOME, IDS.mint), IDS.mint()
    for number in range(10):
        context = {"note": f"{number} " * 40_000}
        draft = drafts.execution(run, context=context) if number == 0 else drafts.frame(run, 1, number, context=context)
        await ledger.append(draft.stream, [await externalize(writer, draft)])
    projector = Projector(ledger, MemoryProjectionStore(), FoldRegistry(), Upcasters(), payloads=reader)
    await projector.run_until(await ledger.head())


@pytest.mark.parametrize("beside", ["in the process", "on the node", "elsewhere"])
async def test_a_projector_beside_its_writers_reads_from_the_tiers(beside: str, tmp_path: Path) -> None:
    """INV-153."""
    durable, figures = MemoryPayloadStore(), Figures()
    disk = None if beside == "in the process" else DiskCache(tmp_path / "one", 1 << 30, figures)
    near = Tiers(figures=figures, memory=ByteLru(64 << 20), disk=disk)
    others = {
        "in the process": near,
        "on the node": Tiers(figures=figures, memory=ByteLru(64 << 20), disk=disk),
        "elsewhere": Tiers(figures=figures, disk=DiskCache(tmp_path / "two", 1 << 30, figures)),
    }
    await project(TieredPayloads(durable, near), TieredPayloads(durable, others[beside], consumer="projector"))
    told = figures.told()
    assert sum(told.reads["projector"].values()) == 10
    assert (told.ratio("projector", NEAR) > 0.6) == (beside != "elsewhere")
