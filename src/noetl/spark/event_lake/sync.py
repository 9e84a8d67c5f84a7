"""The program that keeps the lake up to date: one streaming query over the ledger, whose batches are committed by the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.errors import Unsupported
from noetl.model.mark import Mark
from noetl.spark.drivers.ongoing_work import is_connect
from noetl.spark.drivers.programs import Call
from noetl.spark.event_lake.batches import Batches, SyncArguments
from noetl.spark.event_lake.checkpoints import checkpoint_address, prove_shared
from noetl.spark.event_lake.facts import refresh
from noetl.spark.event_lake.files import SETTINGS
from noetl.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noetl.model.stream import Scope
from noetl.spark.drivers.ongoing_work import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOOK_SECONDS: Final = 0.2


def sync(session: SparkSession, call: Call) -> dict[str, Any]:
    """Bring the lake up to a mark, or follow the ledger; return what was written."""
    if is_connect(session):
        raise Unsupported(
            "the event lake is written by a driver of its own, which a Spark Connect server does not give",
            hint="set spark.master to local[*], spark://…, k8s://… or yarn for this command",
        )
    told = msgspec.convert(call.arguments, SyncArguments)
    register(session)
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    name = f"{told.tenant}/{told.organization}/streams/{told.generation}-{told.epoch}"
    address = checkpoint_address(call.lake, told.checkpoint, name)
    prove_shared(session, address)
    batches = Batches(session, call, told, address)
    with following_facts(session, call, told.scope, told.facts_seconds if told.upto is None else None):
        _run(session, call, told, address, batches)
    if told.upto is not None and not batches.ended:
        batches.catch_up(Mark.parse(told.upto))
    if told.facts_seconds is not None:
        refresh(session, call, told.scope, sorted(batches.days))
    return {"batches": batches.committed, "rows": batches.rows, "mark": batches.mark}


def _run(session: SparkSession, call: Call, told: SyncArguments, address: str, batches: Batches) -> None:
    options = batches.options | {"after": told.after, "batch_events": str(told.batch_events)}
    if told.upto is not None:
        options["upto"] = told.upto
    events = session.readStream.format("noetl").options(**options).load()
    writing = events.writeStream.foreachBatch(batches).option("checkpointLocation", address)
    if told.upto is None:
        query = writing.trigger(processingTime=f"{int(told.trigger_seconds * 1000)} milliseconds").start()
    else:
        query = writing.trigger(availableNow=True).start()
    try:
        while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]
            if call.should_stop():
                with batches.between():
                    query.stop()
    except Exception as problem:
        if not batches.ended:
            raise batches.problem or problem from None
    finally:
        if query.isActive:
            query.stop()


_WAIT_SECONDS: Final = 0.5


@contextmanager
def following_facts(session: SparkSession, call: Call, scope: Scope, every_seconds: float | None) -> Iterator[None]:
    """Refresh the facts every so often for the time of the block; not at all where no time is given."""
    if every_seconds is None:
        yield
        return
    ended = threading.Event()
    own = session.newSession()

    def follow() -> None:
        while not ended.wait(every_seconds):
            with working(own, [call.tag]):
                try:
                    refresh(own, call, scope, [])
                except Exception as problem:
                    print(f"the facts could not be refreshed: {problem}")  # noqa: T201 - goes to the program's log

    thread = threading.Thread(target=follow, name=f"{call.tag}-facts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # In small waits: an interrupt raises between them, and never inside one.
        while thread.is_alive():
            thread.join(_WAIT_SECONDS)
