"""How near the tiers of payloads are: reads and writes of shared memory beside disk, a local S3 server and a bare copy.

A read ends with the opened batches, their values untouched; the reduce reads them.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bench.figure import Figure, alternating
from noetl.kernel.payloads.codec import ARROW_STREAM, EncodedTable, decode_table, encode_table
from noetl.kernel.payloads.consumers import Origin, producing
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.shared_memory.shm import SharedMemory, memory_directory
from noetl.kernel.payloads.tiers import TieredPayloads, Tiers
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.testing.servers.s3 import running_s3

SCOPE: Final = Scope("default", "default")
LARGE_ROWS: Final = 4_000_000
SMALL_ROWS: Final = 6_250
FRAMES: Final = 8
ROUNDS: Final = 7
BUDGET: Final = 2 << 30


@dataclass(frozen=True)
class Stores:
    """The durable store, and the same with one tier before it."""

    durable: TieredPayloads
    shared: TieredPayloads
    disk: TieredPayloads
    memory: SharedMemory


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure the figures that are wanted."""
    found = []
    async with _stores() as stores:
        large = _table(LARGE_ROWS, 0)
        ref = await _stored(stores, large)
        if "tiers.shm_vs_s3" in wanted:
            found.append(await _nearer("tiers.shm_vs_s3", stores.shared, stores.durable, ref, 100))
        if "tiers.shm_vs_disk" in wanted:
            found.append(await _nearer("tiers.shm_vs_disk", stores.shared, stores.disk, ref, 50))
        if "tiers.write" in wanted:
            found.append(await _write(stores.memory, large))
        if "tiers.small" in wanted:
            small = await _stored(stores, _table(SMALL_ROWS, 1))
            ours, floor = await _read_both(stores.shared, stores.disk, small, 50)
            found.append(Figure.ratio("tiers.small", ours, floor, "ms", 1.0, "less"))
        if "tiers.reduce" in wanted:
            found.append(await _reduce(stores))
    return found


@asynccontextmanager
async def _stores() -> AsyncIterator[Stores]:
    folder = Path(tempfile.mkdtemp(prefix="noetl-bench-"))
    shared = Path(tempfile.mkdtemp(prefix="noetl-bench-", dir=memory_directory()))
    try:
        with running_s3(folder) as server:
            connection = Connection(
                backend="minio",
                endpoint=server.endpoint,
                bucket=server.bucket,
                access_key=server.access_key,
                secret_key=server.secret_key,
                allow_http=True,
            )
            store, none = open_object_store(connection), Tiers()
            node = NodeDirectory(shared, "bench")
            memory = SharedMemory(node, BUDGET, 30.0, none.figures)
            disk = DiskCache(folder / "cache", BUDGET, none.figures)
            yield Stores(
                TieredPayloads(store, none),
                TieredPayloads(store, Tiers(ipc=memory)),
                TieredPayloads(store, Tiers(disk=disk)),
                memory,
            )
            memory.close()
            node.close()
            disk.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shared, ignore_errors=True)


def _table(rows: int, first: int) -> EncodedTable:
    numbers = pa.array(range(first, first + rows), pa.int64())
    return encode_table(pa.table({"n": numbers, "level": pc.multiply(pc.cast(numbers, pa.float64()), 0.5)}))


async def _stored(stores: Stores, table: EncodedTable) -> PayloadRef:
    with producing(1, 1, 3600.0):
        ref = await stores.shared.store(
            SCOPE, table.data, ARROW_STREAM, rows=table.rows, schema_digest=table.schema_digest
        )
    await stores.disk.view(SCOPE, ref)
    return ref


async def _opened(store: TieredPayloads, ref: PayloadRef) -> pa.Table:
    return decode_table(await store.view(SCOPE, ref))


async def _read_both(
    ours: TieredPayloads, floor: TieredPayloads, ref: PayloadRef, times: int = 1
) -> tuple[float, float]:
    """Return the milliseconds one read takes in ours and in the floor."""

    def reading(store: TieredPayloads) -> Callable[[int], Awaitable[float]]:
        async def read(_number: int) -> float:
            began = time.perf_counter()
            for _ in range(times):
                await _opened(store, ref)
            return (time.perf_counter() - began) * 1000 / times

        return read

    for store in (ours, floor):
        await _opened(store, ref)
    return await alternating(reading(ours), reading(floor), ROUNDS)


async def _nearer(name: str, ours: TieredPayloads, floor: TieredPayloads, ref: PayloadRef, bar: float) -> Figure:
    """Hold how many times as quick ours is against the bar."""
    mine, base = await _read_both(ours, floor, ref)
    return Figure.of(name, base / mine, mine, base, "ms", bar, "more")


async def _write(memory: SharedMemory, table: EncodedTable) -> Figure:
    """Compare a write into a region that was used before with one copy of the same bytes between warm memories."""
    key, over = "f" * 40, Origin(1, 1, -3600.0)
    target = bytearray(len(table.data))
    source, place = pa.py_buffer(table.data), pa.py_buffer(target)

    async def ours(_number: int) -> float:
        began = time.perf_counter()
        assert memory.put(key, table.data, table.schema_digest, over) is not None
        took = time.perf_counter() - began
        memory.expire()
        return took * 1000

    async def floor(_number: int) -> float:
        began = time.perf_counter()
        ctypes.memmove(place.address, source.address, len(table.data))
        return (time.perf_counter() - began) * 1000

    for _ in range(2):
        await ours(0)
        await floor(0)
    mine, base = await alternating(ours, floor, 3 * ROUNDS)
    return Figure.ratio("tiers.write", mine, base, "ms", 1.3, "less")


async def _reduce(stores: Stores) -> Figure:
    """Sum a column over half a gigabyte of frames, with shared memory and with the durable store alone."""
    refs = [await _stored(stores, _table(LARGE_ROWS, number)) for number in range(1, FRAMES + 1)]
    wanted = sum(LARGE_ROWS * (2 * first + LARGE_ROWS - 1) / 4 for first in range(1, FRAMES + 1))

    def reducing(store: TieredPayloads) -> Callable[[int], Awaitable[float]]:
        async def reduce(_number: int) -> float:
            began = time.perf_counter()
            total = 0.0
            for ref in refs:
                total += pc.sum((await _opened(store, ref)).column("level")).as_py()
            took = time.perf_counter() - began
            assert abs(total - wanted) < 1e-6 * wanted
            return took

        return reduce

    mine, base = await alternating(reducing(stores.shared), reducing(stores.durable), 3)
    return Figure.ratio("tiers.reduce", mine, base, "s", 0.5, "less")
