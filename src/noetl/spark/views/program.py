"""The program that keeps a view up to date: one streaming query, whose batches the worker applies, each with its barrier.

It decides nothing: rows and range of a batch are told, and the worker writes them together or, if they stand already,
not at all. So a batch that is run again after a crash changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.errors import ConfigError, InputError, NoetlError, Unsupported
from noetl.faults import reach
from noetl.model.event import time_text
from noetl.model.stream import Scope
from noetl.spark.drivers.ongoing_work import is_connect
from noetl.spark.drivers.programs import Call
from noetl.spark.event_lake.checkpoints import prove_shared
from noetl.spark.lake.writer import own_session_settings
from noetl.spark.source import register
from noetl.spark.source.options import source_options
from noetl.spark.views.dataset_changes import DatasetChanges
from noetl.spark.views.late_events import LATE_SOURCE, Checkpoint, Planned, late_options, register_late
from noetl.spark.views.output import DatasetOutput, Output, RowsOutput
from noetl.spark.views.query import hold_streamed, result_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRAM: Final = "noetl.spark.views.program:keep"
_LOOK_SECONDS: Final = 0.2


def keep(session: SparkSession, call: Call) -> dict[str, Any]:
    """Run a view's query until it is asked to stop, or has come as far as it should; return how many batches it made."""
    asked = call.arguments
    if is_connect(session):
        raise Unsupported(
            "a view keeps its state in a driver of its own, which a Spark Connect server does not give",
            hint="set spark.master to local[*], spark://…, k8s://… or yarn for whoever runs views",
        )
    for name, value in own_session_settings().items():
        session.conf.set(name, value)
    # A batch without events would only forget old state, and tell nothing.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    _prove(session, asked)
    stream = opened(session, call)
    output: Output
    if asked.get("dataset") is not None:
        result, output = stream, DatasetChanges(session, call)
    else:
        result = result_of(session, stream, asked)
        grouped = hold_streamed(result, asked["view"])
        if asked.get("rollup") is not None and not grouped:
            raise InputError(f"view {asked['view']} has a rollup, and its query groups nothing", hint="leave it out")
        output = DatasetOutput(session, call, whole=grouped) if asked["sink"] == "dataset" else RowsOutput(call)
    batches = _Batches(call, Checkpoint(session, asked["checkpoint"]), output)
    writing = result.writeStream.foreachBatch(batches).outputMode(output.mode)
    writing = writing.option("checkpointLocation", asked["checkpoint"]).queryName(f"noetl-view-{asked['view']}")
    _run(call, writing.trigger(processingTime=f"{asked['interval_ms']} milliseconds"), batches)
    return {"batches": batches.done, "mark": batches.mark}


def opened(session: SparkSession, call: Call) -> DataFrame:
    """Return the stream of a view's events, without those that come too late."""
    asked = call.arguments
    more = {**asked["source"], "batch_events": str(asked["batch_events"])}
    if asked.get("upto"):
        more["upto"] = asked["upto"]
    options = source_options(Scope(asked["tenant"], asked["organization"]), call.reach, **more)
    seconds = asked.get("watermark_seconds")
    columns = schema_of(asked.get("columns"))
    if seconds is None:
        register(session)
        return session.readStream.format("noetl").schema(columns).options(**options).load()
    register_late(session)
    options |= late_options(asked["checkpoint"], asked["time_column"])
    stream = session.readStream.format(LATE_SOURCE).schema(columns).options(**options).load()
    return stream.withWatermark(asked["time_column"], f"{int(seconds * 1000)} milliseconds")


def _run(call: Call, writing: Any, batches: _Batches) -> None:
    query = writing.start()
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            if call.should_stop() or batches.has_come(call.arguments.get("upto")):
                query.stop()
    except Exception as problem:
        raise batches.problem or problem from None
    finally:
        if query.isActive:
            query.stop()


def _prove(session: SparkSession, asked: dict[str, Any]) -> None:
    try:
        prove_shared(session, asked["checkpoint"])
    except ConfigError as problem:
        raise ConfigError(
            f"view {asked['view']}: {problem.message}",
            hint="set views.checkpoint, or checkpoint.path of the view, to a directory that all of Spark shares",
        ) from None


class _Batches:
    """Makes batches one after another; what goes wrong in one is kept, since Spark tells it in its own words."""

    def __init__(self, call: Call, checkpoint: Checkpoint, output: Output) -> None:
        self._call = call
        self._checkpoint = checkpoint
        self._output = output
        self._identity: str | None = None
        self.done = 0
        self.mark: str | None = None
        self.problem: NoetlError | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Make one batch and have it applied."""
        try:
            planned = self._checkpoint.planned(batch)
            self._identity = self._identity or self._checkpoint.identity()
            reach("view.before_rows")
            self._output.apply(rows, batch, barrier_of(planned, self._identity))
            reach("view.after_barrier")
            self.done += 1
            self.mark = planned.mark
        except NoetlError as problem:
            self.problem = problem
            raise

    def has_come(self, upto: str | None) -> bool:
        """Tell whether the last batch reached the mark after which there is nothing to do."""
        return upto is not None and self.mark == upto


def barrier_of(planned: Planned, identity: str) -> dict[str, Any]:
    """Return a batch's range as the worker is told of it."""
    return {
        "batch": planned.batch,
        "since": planned.since,
        "mark": planned.mark,
        "watermark": None if planned.watermark is None else time_text(planned.watermark),
        "checkpoint": identity,
    }
