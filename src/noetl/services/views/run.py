"""Runs one version of a view: the driver's program asks, and this side answers from ledger and database, under the lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol

import msgspec

from noetl.errors import Conflict, InputError, LeaseLost, NoetlError, Unavailable
from noetl.faults import reach
from noetl.language.view.definition import Definition
from noetl.language.view.select import columns_read
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite
from noetl.services.views.barriers import Barrier, Batch
from noetl.services.views.checkpoints import checkpoint_of, forget_checkpoint
from noetl.services.views.sinks.dataset import DatasetSink
from noetl.services.views.sinks.port import Sink
from noetl.services.views.versions import Version, Versions, ViewLease
from noetl.spark.drivers.process import LOST, Answering
from noetl.spark.drivers.protocol import RunProgram, WorkResult
from noetl.spark.source.columns import NAMES

_log = logging.getLogger(__name__)

PROGRAM: Final = "noetl.spark.views.program:keep"
_AGAIN_SECONDS: Final = 0.5
_RANGE: Final = ("batch", "mark", "checkpoint", "since", "watermark", "whole", "columns")
"""What is told of a batch besides its rows."""


class Driving(Protocol):
    """A driver as it is held."""

    async def do(self, errand: RunProgram, answer: Answering | None = None) -> WorkResult:
        """Do one errand and return its result."""
        ...

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let what runs under a tag know that it should end."""
        ...


class SparkDrivers(Protocol):
    """What hands out Spark drivers."""

    def for_(self, code_digest: str, bundle: bytes, organization: str) -> AbstractAsyncContextManager[Driving]:
        """Hold a driver."""
        ...


class Pins(Protocol):
    """What fixes the files of a dataset at a mark."""

    async def __call__(self, scope: Scope, dataset: str, mark: Mark) -> dict[str, Any]:
        """Return columns and files of a dataset as it was at a mark, and a word that changes with them."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What runs of views need of their process."""

    versions: Versions
    drivers: SparkDrivers
    sink_of: Callable[[Scope, Version, ViewLease | None], Sink]
    fetch: Callable[[Scope, PayloadRef], Awaitable[bytes]]
    pin: Pins
    reach: dict[str, Any]
    """How the data source reaches the database; never logged."""
    master: str
    checkpoint: str
    """The directory under which views keep Spark's state, unless they name one."""
    partitions: int


class ViewRun:
    """One run of one version under a lease."""

    def __init__(self, around: Surroundings, version: Version, lease: ViewLease) -> None:
        self._around = around
        self._version = version
        self._lease = lease
        self._scope = lease.scope
        self._sink = around.sink_of(lease.scope, version, lease)
        self._told = Batch(batch=-1, mark="", checkpoint="")
        self._serves = version.status == "current"
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let the run end in good order."""
        self._stopping.set()

    async def keep(self, upto: Mark | None = None) -> Barrier | None:
        """Keep the view up to date until told to stop, or until it covers a mark; return the barrier it stands at."""
        try:
            await self._sink.open()
            standing = await self._sink.standing()
            if self._serves:
                # Whoever swapped may have died before it cleared away what served before.
                await self._clear()
            elif standing is not None:
                await self._swap(standing)
            if upto is None or standing is None or not Mark.parse(standing.mark).covers(upto):
                await self._run(upto)
            return await self._sink.standing()
        finally:
            await self._sink.close()

    async def _run(self, upto: Mark | None) -> None:
        around, version = self._around, self._version
        code = b"" if version.bundle_ref is None else await around.fetch(self._scope, version.bundle_ref)
        owner = f"{self._scope.tenant_id}/{self._scope.organization_id}"
        errand = RunProgram(
            id=f"view-{version.version_id}",
            attempt=self._lease.attempt,
            organization=owner,
            reach=around.reach,
            program=PROGRAM,
            arguments=arguments_of(around, self._scope, version) | {"upto": None if upto is None else upto.token()},
            settings={"spark.sql.shuffle.partitions": str(around.partitions), **version.definition.spark},
        )
        async with around.drivers.for_(version.code_digest, code, owner) as driver:
            result = await self._done(driver, errand)
        if result.status != "ok" and not self._stopping.is_set():
            raise _failure(version.view, result)

    async def _done(self, driver: Driving, errand: RunProgram) -> WorkResult:
        doing = asyncio.ensure_future(driver.do(errand, self.answer))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await driver.ask_to_stop(errand.tag)
            return await doing
        finally:
            stopping.cancel()
            if not doing.done():
                doing.cancel()
                with suppress(asyncio.CancelledError):
                    await doing

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer one question of the driver; a database that is away for a moment is waited for."""
        while True:
            try:
                return await self._answered(asked)
            except Unavailable as problem:
                _log.warning("view %s waits for the database: %s", self._version.view, problem.message)
                if self._stopping.is_set():
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _AGAIN_SECONDS)

    async def _answered(self, asked: dict[str, Any]) -> dict[str, Any]:
        what = asked["what"]
        if what in ("rows", "barrier"):
            self._take(asked)
            if what == "barrier":
                barrier = await self._sink.apply(self._told)
                await self._swap(barrier)
            return {}
        if what == "pin":
            return await self._pinned(asked)
        if what in ("begin", "commit") and isinstance(self._sink, DatasetSink):
            return await self._committed(self._sink, asked)
        raise InputError(f"view {self._version.view}: a driver asked for {what}, which nobody knows")

    async def _committed(self, sink: DatasetSink, asked: dict[str, Any]) -> dict[str, Any]:
        batch = msgspec.convert({name: asked[name] for name in _RANGE if asked.get(name) is not None}, Batch)
        if asked["what"] == "begin":
            grant = await sink.begin(batch)
            return {"grant": None if grant is None else msgspec.to_builtins(grant)}
        writes = msgspec.convert(asked["writes"], list[PartitionWrite])
        await self._swap(await sink.commit(batch, writes))
        return {}

    def _take(self, asked: dict[str, Any]) -> None:
        if asked["first"]:
            self._told = Batch(batch=asked["batch"], mark="", checkpoint="", rows={}, gone=[])
        told = self._told
        for key, value, kept in zip(asked["keys"], asked["values"], asked["kept"], strict=True):
            if key in told.rows:
                raise InputError(
                    f"view {self._version.view} gives two rows for the key {key}",
                    hint="name all columns that tell rows apart under keys, or group by the keys",
                )
            if kept:
                told.rows[key] = value
            else:
                told.gone.append(key)
        if asked["what"] == "barrier":
            for name in _RANGE:
                if asked.get(name) is not None:
                    setattr(told, name, asked[name])

    async def _pinned(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Fix the dataset at a batch's mark."""
        definition = self._version.definition
        assert definition.dataset is not None
        return await self._around.pin(self._scope, definition.dataset, Mark.parse(asked["mark"]))

    async def _swap(self, barrier: Barrier) -> None:
        """Let the version serve once it has come as far as it has to, and clear away the ones before."""
        if self._serves or not Mark.parse(barrier.mark).covers(Mark.parse(self._version.target_mark)):
            return
        reach("view.before_swap")
        await self._sink.serve()
        await self._around.versions.activate(self._lease, barrier.mark)
        reach("view.after_swap")
        self._serves = True
        await self._clear()

    async def _clear(self) -> None:
        ended = [one for one in await self._around.versions.of(self._scope, self._version.view) if one.ended_at]
        await self._sink.clear([one.version_id for one in ended])
        for one in ended:
            await asyncio.to_thread(forget_checkpoint, self._around.checkpoint, self._scope, one)


def arguments_of(around: Surroundings, scope: Scope, version: Version) -> dict[str, Any]:
    """Return what a driver is told of a version."""
    own: Definition = version.definition
    return {
        "tenant": scope.tenant_id,
        "organization": scope.organization_id,
        "view": own.name,
        "relation": own.relation,
        "sql": own.sql,
        "file": own.file,
        "function": own.function,
        "keys": list(own.keys),
        "rollup": own.rollup,
        "keep": own.keep,
        "dataset": own.dataset,
        "columns": _columns(own),
        "source": own.source() if own.dataset is None else {"types": ",".join(CHANGING)},
        "sink": own.sink,
        "time_column": own.time_column,
        "watermark_seconds": own.watermark_seconds,
        "interval_ms": own.interval_ms,
        "batch_events": own.batch_events,
        "checkpoint": checkpoint_of(around.checkpoint, around.master, scope, version),
    }


CHANGING: Final = ("partition.committed", "partition.dropped", "dag.activated", "dag.rolled_back", "generation.*")
"""The events by which a published dataset changes."""


def _columns(own: Definition) -> list[str] | None:
    """Return the columns of events that a view reads; None where that cannot be told."""
    if own.dataset is not None:
        return ["event_id"]
    read = None if own.sql is None else columns_read(own.sql, NAMES)
    return None if read is None else sorted({*read, own.time_column, "event_id"})


def _failure(view: str, result: WorkResult) -> NoetlError:
    said = f"view {view}: {result.error}"
    if result.error_kind == LOST:
        return Unavailable(said)
    if result.error_kind in (Conflict.code, LeaseLost.code):
        return Conflict(said)
    return InputError(said) if result.error_kind == InputError.code else Unavailable(said)
