"""Errands in the driver: frames worked off in lanes, queries over frames' results, queries over datasets, and programs.

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
from noetl.spark.frames_lane import LaneWork, lane
from noetl.spark.frames_query import answered
from noetl.spark.integrity.spark_errors import damage_told
from noetl.spark.lake import Lake
from noetl.spark.logs import SparkLog, masked
from noetl.spark.modes import Mode
from noetl.spark.programs import PROGRAMS
from noetl.spark.protocol import AnyErrand, Done, FromDriver, RunProgram, RunQuery, RunSelect, WorkResult
from noetl.spark.selecting import SETTINGS, selected
from noetl.spark.working import ONGOING, Interrupted, working

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
