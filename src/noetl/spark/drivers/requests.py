"""What a driver does beside tasks: stages of frames, queries over their results and over datasets, and programs.

Each runs in a thread and a session of its own under its tag, and has exactly one result.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from noetl.errors import Damaged, NoetlError
from noetl.spark.drivers.logs import SparkLog, masked
from noetl.spark.drivers.ongoing_work import ONGOING, Interrupted, working
from noetl.spark.drivers.programs import PROGRAMS
from noetl.spark.drivers.protocol import AnyErrand, Done, FromDriver, RunProgram, RunQuery, RunSelect, WorkResult
from noetl.spark.frames.executor_task import LaneWork, lane
from noetl.spark.frames.result_query import answered
from noetl.spark.lake.integrity.read_errors import damage_told
from noetl.spark.lake.storage import Lake
from noetl.spark.session.modes import Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from typing import TYPE_CHECKING

from noetl.errors import InputError, Unsupported
from noetl.kernel.payloads.codec import encode_table
from noetl.spark.drivers.ongoing_work import is_connect
from noetl.spark.lake.reader import files_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LANE_ROWS: Final = "lane int, frame_index long, reference string, ending string"


class Errands:
    """Starts errands and sends their results."""

    def __init__(self, mode: Mode, lake: Lake, spark_log: SparkLog, send: Callable[[FromDriver], None]) -> None:
        self._mode = mode
        self._lake = lake
        self._log = spark_log
        self._send = send

    def start(self, errand: AnyErrand) -> None:
        """Do an errand in the background."""
        ONGOING.begin(errand.tag, errand.organization)
        threading.Thread(target=self._run, args=(errand,), name=errand.tag, daemon=True).start()

    def _run(self, errand: AnyErrand) -> None:
        since = self._log.position()
        try:
            settings = SETTINGS if isinstance(errand, RunSelect) else {}
            if isinstance(errand, RunProgram):
                settings = errand.settings
            session = self._mode.session(settings, errand.id, errand.tag)
            try:
                with working(session, [errand.tag]):
                    metrics = self._done(session, errand)
            finally:
                self._mode.release(session)
            result = WorkResult(task_id=errand.id, attempt=errand.attempt, status="ok", metrics=metrics)
        except BaseException as problem:
            result = _failed(errand, problem)
        printed, markers = ONGOING.log(errand.tag)
        said = "\n".join(filter(None, (result.log, printed, self._log.lines(markers, since))))
        secrets = list(_texts(errand.reach))
        error = result.error and masked(result.error, secrets)
        ONGOING.end(errand.tag)
        self._send(Done(msgspec.structs.replace(result, error=error, log=masked(said, secrets))))

    def _done(self, session: SparkSession, errand: AnyErrand) -> dict[str, Any]:
        if isinstance(errand, RunQuery):
            return answered(session, errand)
        if isinstance(errand, RunSelect):
            return selected(session, errand, self._lake)
        if isinstance(errand, RunProgram):
            return PROGRAMS.run(session, errand, self._lake, self._send)
        work = LaneWork(
            reach=errand.reach,
            grant=errand.grant,
            # So the ledger names application, tag and lane with every frame before its rows are worked off.
            worker=f"{errand.worker}/spark/{self._mode.application_id}/{errand.tag}",
        )
        lanes = session.range(0, errand.lanes, 1, errand.lanes).mapInArrow(partial(lane, work), LANE_ROWS)
        rows = lanes.collect()
        return {
            "frames": sum(row.reference is not None for row in rows),
            "endings": [json.loads(row.ending) for row in rows if row.ending is not None],
        }


def _failed(errand: AnyErrand, problem: BaseException) -> WorkResult:
    stopped = isinstance(problem, Interrupted) or ONGOING.is_interrupted(errand.tag)
    damage = None if isinstance(problem, NoetlError) else damage_told(problem)
    if isinstance(problem, NoetlError):
        message, kind, retryable = problem.message, problem.code, problem.disposition == "transient"
    elif damage is not None:
        message, kind, retryable = damage, Damaged.code, False
    else:
        first = (str(problem).strip() or "no message").splitlines()[0]
        message, kind, retryable = f"{type(problem).__name__}: {first}", "spark_error", True
    return WorkResult(
        task_id=errand.id,
        attempt=errand.attempt,
        status="interrupted" if stopped else "error",
        error="it was told to stop" if stopped else message,
        error_kind="interrupted" if stopped else kind,
        retryable=retryable,
        log="".join(traceback.format_exception(problem)),
    )


def _texts(reach: dict[str, Any]) -> Iterator[str]:
    """Yield the secret texts of what executors are told, so that no log repeats one."""
    url = reach.get("database_url") or ""
    store = reach.get("settings", {}).get("payload_store", {}).get("connection", {})
    found = (url, urlsplit(url).password, reach.get("token"), store.get("secret_key"), reach.get("payloads_url"))
    yield from filter(None, found)


SETTINGS: Final = {
    # Or `${env:NAME}` in a text would become what the environment says.
    "spark.sql.variable.substitute": "false",
}
"""What a session for queries has beside what every session has."""


_FORGOTTEN: Final = ("reflect", "java_method", "try_reflect", "input_file_name", "input_file_block_start")
"""Functions that the session of a query does not have: no query that passed the gate calls one."""


def selected(session: SparkSession, asked: RunSelect, lake: Lake) -> dict[str, Any]:
    """Run a query and return its rows as an Arrow stream."""
    from pyspark.errors import AnalysisException, ParseException

    _forget_functions(session)
    for one in asked.relations:
        frame = files_frame(session, one.columns, [(entry, 0) for entry in one.files], lake)
        frame.createOrReplaceTempView(one.name)
    try:
        return {"table": encode_table(session.sql(asked.sql).toArrow()).data}
    except (AnalysisException, ParseException) as problem:
        raise InputError(_first_words(problem)) from None


def _forget_functions(session: Any) -> None:
    """Take from a session of this JVM what reaches beyond rows; a Spark Connect server keeps its own."""
    if is_connect(session):
        return
    registry = session._jsparkSession.sessionState().functionRegistry()
    named, some = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier, session._jvm.scala.Some
    for name in _FORGOTTEN:
        if not registry.dropFunction(named(name, some("builtin"), some("system"))):
            raise Unsupported(f"this Spark does not let go of its function {name}, so it answers no queries")


def _first_words(problem: Exception) -> str:
    """Return what Spark says without the plan and the SQL it adds."""
    return str(problem).partition(" SQLSTATE")[0].partition(";\n")[0].strip()[:2000]
