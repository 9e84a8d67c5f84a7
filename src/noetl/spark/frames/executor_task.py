"""One partition of a stage inside an executor: works off frames until none is left and yields their references.

Light to import: what works at frames is loaded by the Python worker that runs the partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow

    from noetl.engine.dispatch.grants import CommandGrant, LeaseRef
    from noetl.engine.dispatch.port import Dispatch
    from noetl.engine.worker.services import Services
    from noetl.kernel.leases.heartbeats import Renewing
    from noetl.model.payload_ref import PayloadRef


@dataclass(frozen=True)
class LaneWork:
    """What every lane of a stage is told."""

    reach: dict[str, Any]
    grant: bytes
    worker: str


class Reach(Protocol):
    """What an executor connects to; made by the function that `reach["opener"]` names, from the rest of `reach`."""

    def work(self) -> AbstractAsyncContextManager[tuple[Services, Dispatch]]:
        """Connect what rows are worked off with, for the time of the block."""
        ...

    def beats(self) -> AbstractAsyncContextManager[Renewing[LeaseRef]]:
        """Connect what renews leases, apart from everything else."""
        ...

    async def committed(self, grant: CommandGrant, worker: str) -> list[tuple[int, PayloadRef]]:
        """Return index and result of the frames a worker has committed, where the ledger itself can be asked."""
        ...

    def payloads(self) -> Callable[[PayloadRef], Awaitable[memoryview]]:
        """Return what gives the bytes of a payload, where they lie if this node has them in memory."""
        ...


def opened(reach: dict[str, Any]) -> Reach:
    """Return what an executor connects to."""
    module, _, name = str(reach["opener"]).partition(":")
    made: Reach = getattr(import_module(module), name)(reach)
    return made


def lane(work: LaneWork, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Work off frames for one partition of a DataFrame of lane numbers."""
    import pyarrow as pa
    from pyspark import TaskContext

    from noetl.spark.frames.slot import run

    for _ in batches:
        pass
    context = TaskContext.get()
    assert context is not None
    number = context.partitionId()
    references, ending = run(work, f"{work.worker}/lane/{number}", is_retry=context.attemptNumber() > 0)
    rows = [*((number, index, reference, None) for index, reference in references), (number, None, None, ending)]
    lanes, indexes, texts, endings = zip(*rows, strict=True)
    yield pa.RecordBatch.from_arrays(
        [pa.array(lanes, pa.int32()), pa.array(indexes, pa.int64()), pa.array(texts, pa.string()), pa.array(endings, pa.string())],
        names=["lane", "frame_index", "reference", "ending"],
    )  # fmt: skip
