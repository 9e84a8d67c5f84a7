"""What must be true when everything has ended: rows and projections are what the events say, and everybody got what they asked for."""

from __future__ import annotations

from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.services.schedule.planning import following
from noetl.testing.engines.memory import SCOPE
from noetl.testing.engines.memory_parity import memory_differences
from noetl.testing.simulation.world.playbooks import Wanted
from noetl.testing.simulation.world.world import World


async def check_end(world: World, acknowledged: dict[str, int], cancelled: set[int]) -> None:
    """Hold the end of a world against what was asked for."""
    for one in world.scenario.wanted:
        _check_outcome(world, one, acknowledged[one.name], cancelled)
    if "scheduler-1" in world.scenario.processes:
        _check_moments(world)
    for name in world.outbox.rows:
        if not world.outbox.delivered[name]:
            world.watch.fail("what is in the outbox is delivered", f"{name} is marked as done, and nobody delivered it")
    if "projector-1" in world.scenario.processes:
        await _check_projections(world)
    for difference in await memory_differences(world.ledger, SCOPE):
        world.watch.fail(
            "rows are what the events say", f"{difference.table}: {difference.found}, not {difference.expected}"
        )


def _check_outcome(world: World, one: Wanted, execution_id: int, cancelled: set[int]) -> None:
    watch = world.watch
    key = f"request/{one.name}"
    if watch.keys[key] != 1:
        watch.fail("acknowledged facts stand once", f"the request of {one.name} stands {watch.keys[key]} times")
    status = watch.status.get(execution_id, "nothing")
    if execution_id in cancelled or execution_id in watch.given_up:
        return
    fails = one.shape in ("ring", "failing") or bool(one.bad)
    if fails is (status == "playbook.completed"):
        watch.fail("work without a fault of its own succeeds", f"{one.name} ended with {status}")
    if one.shape in ("loop", "fanout", "resumed"):
        wanted = {"rows": one.rows, "failed": len(one.bad)}
        if (found := watch.results.get(execution_id)) != wanted:
            watch.fail("a row counts once", f"{one.name} came to {found}, not {wanted}")


def _check_moments(world: World) -> None:
    slots, moments = world.slots, 0
    at = slots.first
    while at < slots.next_plan:
        at, moments = following(slots.spec, at), moments + 1
    found = world.watch.moments.count + slots.skipped
    if found != moments:
        world.watch.fail("no moment is forgotten", f"{found} of {moments} moments were claimed or passed over")


async def _check_projections(world: World) -> None:
    """Let projectors catch up without faults, and hold their rows against those of a projector that begins anew."""
    anew, head = MemoryProjectionStore(), await world.ledger.head()
    for store in (world.projections, anew):
        await Projector(world.ledger, store, FoldRegistry(), Upcasters(), payloads=world.payloads).run_until(head)
    kept, expected = await _rows(world.projections), await _rows(anew)
    for name in sorted(kept.keys() | expected.keys()):
        if kept.get(name) != expected.get(name):
            world.watch.fail("projections are what the events say", f"{name} is not what folding all events gives")


async def _rows(store: MemoryProjectionStore) -> dict[str, str]:
    async with store.snapshot_view(SCOPE) as view:
        return {f"{row.folded.key.projection} {row.folded.key.row_id}": row.checksum async for row in view.query()}
