"""Pipelines in a process of its own: `process.py GIVEN`, a JSON of `Given`. Tells on its output what becomes of tasks.

The fault points armed in its environment stop or kill it; SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import msgspec
import pyarrow as pa

from noetl.model.task import TaskGrant
from noetl.pipelines.sources.supervisor import SourceKeeper
from noetl.pipelines.worker.in_process import OperatorFailed, Produced
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.spark.drivers.pool import Drivers
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.storage import Lake
from noetl.spark.session.options import SparkOptions
from noetl.testing.engines.pipelines import connected, open_task_engine, working
from noetl.testing.stuck import tell_when_asked


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told."""

    url: str
    home: str
    lake: str
    spark: SparkOptions | None = None
    emits: tuple[str, str, str] | None = None
    """A DAG, a source of it, and the key under which it is asked for."""
    keeps: bool = False
    """Whether it keeps sources running."""


def tell(grant: TaskGrant, status: str, error: str | None) -> None:
    """Say what became of a task."""
    say(f"{grant.job} {status}")


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fail(work: Work) -> NoReturn:
    """Do what every source without a query does here."""
    raise OperatorFailed("not in this process")


def tick(work: Work) -> Produced:
    """Give one row, numbered by what the turn before remembered."""
    number = int(work.grant.operator_state.get("next", 1))
    return Produced(tables={0: pa.table({"tick": [number]})}, state={"next": number + 1})


async def drive(given: Given) -> None:
    """Do everything that waits in the database until told to stop."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tell_when_asked()
    settings = Settings.model_validate({"runtime": {"home": given.home}, "database": {"url": given.url}})
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        engine = await stack.enter_async_context(open_task_engine(runtime))
        tested = connected(engine, runtime, runtime.scope, Lake(given.lake), Path(given.home, "dag"))
        tested.made.given |= {"failing": fail, "ticks": tick}
        if given.emits is not None:
            dag, job, key = given.emits
            await engine.runs.emit(runtime.scope, dag, job, requested_by="tests", key=key)
        drivers = None
        if given.spark is not None:
            drivers = Drivers(given.spark)
            stack.push_async_callback(drivers.close)
        engine.start()
        await stack.enter_async_context(working(tested, drivers, on_task=tell))
        if given.keeps:
            keeper = SourceKeeper(runtime.database, engine, every_seconds=0.05)
            keeper.start()
            stack.push_async_callback(keeper.stop)
        say("ready")
        await told.wait()


if __name__ == "__main__":
    asyncio.run(drive(msgspec.json.decode(sys.argv[1], type=Given)))
