"""Reports about frames, checked against the frame that was granted: counts, places, references, and who reports."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.reports import references, shared_values
from noetl.engine.dispatch.reports.references import Named
from noetl.engine.dispatch.reports.refusals import bounded, bounded_rows, by_worker, count, named, refuse
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON
from noetl.model.payload_ref import PayloadRef

ERRORS_PER_ROW: Final = 1_000_000
"""Errors that one row may let pass: as often as its tasks may run."""
_CHECKPOINT: Final = frozenset({"done", "swallowed", "set", "artifacts", "output"})


def commit(
    grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
) -> tuple[FrameReport, list[Named]]:
    """Return what may be recorded of a report and the references to look up; what contradicts the frame is refused."""
    _of_slot(grant, frame)
    by_worker(worker, frame.worker)
    rows, has = frame.row_count, f"frame {frame.frame_id} has {frame.row_count} rows"
    done = count("report.row_count", report.row_count, has, least=1, most=rows)
    worked = f"{done} of its rows were worked off"
    failed = count("report.failed_count", report.failed_count, worked, most=done)
    count("report.swallowed", report.swallowed, worked, most=done * ERRORS_PER_ROW)
    found = references.one("report.output", report.output, media_types=(ARROW_STREAM,))
    if report.output is not None and report.output.rows is not None:
        together = grant.loop is not None and grant.loop.frame.get("process") == "frame"
        results = {1} if together else {done} if grant.loop is not None else {1, done}
        if report.output.rows not in results:
            refuse("report.output.rows", report.output.rows, f"{worked}, which come to {max(results)} results")
    found += references.many("report.artifacts", report.artifacts)
    found += shared_values.refs_of("report.ctx_writes", report.ctx_writes)
    found += _rest(frame, report, take_next=take_next)
    errors = bounded_rows(report.errors, frame.first_index, done, failed)
    return msgspec.structs.replace(report, errors=errors), found


def _of_slot(grant: CommandGrant, frame: FrameGrant) -> None:
    works_on = None if grant.loop is None else grant.loop.stage_id
    if grant.execution_id != frame.execution_id or works_on not in (None, frame.stage_id):
        refuse(
            "command", grant.command_id, f"frame {frame.frame_id} is of stage {frame.stage_id}, which it does not serve"
        )


def _rest(frame: FrameGrant, report: FrameReport, *, take_next: bool) -> list[Named]:
    left = frame.row_count - report.row_count
    if not left or frame.rows_ref is None:
        if report.rest is not None:
            why = "no row is left" if not left else "the rows that are left are part of the loop's collection"
            refuse("report.rest", report.rest.uri, why)
    elif report.rest is None:
        refuse("report.rest", None, f"{left} rows that were claimed elsewhere are left, and nothing else names them")
    if left and not take_next:
        refuse("report.row_count", report.row_count, f"the {left} rows that are left go on only with the next frame")
    return references.one("report.rest", report.rest, media_types=(JSON,), rows=left)


def rows(grant: CommandGrant, ref: PayloadRef, row_count: int) -> list[Named]:
    """Return the reference of rows claimed elsewhere; only a cursor claims any, and no more than a frame holds."""
    loop = grant.loop
    if loop is None or loop.mode != "cursor":
        refuse("lease", grant.command_id, "it is no slot of a cursor, and claims no rows")
    most = int(loop.frame["max_rows"])
    count("row_count", row_count, f"a frame of step {grant.step} has 1 to {most} rows", least=1, most=most)
    return references.one("rows", ref, media_types=(JSON,), rows=row_count)


def failure(frame: FrameGrant, error: dict[str, Any], max_attempts: int, worker: str) -> dict[str, Any]:
    """Return what may be recorded of a failed attempt; how many there may be is what the loop's policy says."""
    by_worker(worker, frame.worker)
    if frame.max_attempts is not None and max_attempts != frame.max_attempts:
        refuse("max_attempts", max_attempts, f"frame {frame.frame_id} may be tried {frame.max_attempts} times")
    count("max_attempts", max_attempts, "a frame is tried 1 to 1000 times", least=1, most=1_000)
    return bounded("error", error)


def checkpoint(frame: FrameGrant, cursor: dict[str, Any]) -> list[Named]:
    """Return the references of a checkpoint; one that goes back behind the last, or beyond the frame, is refused."""
    for key in named("cursor", cursor):
        if key not in _CHECKPOINT:
            refuse("cursor", key, f"a checkpoint has {', '.join(sorted(_CHECKPOINT))}")
    before = int((frame.checkpoint or {}).get("done", 0))
    granted = f"frame {frame.frame_id} has {frame.row_count} rows, of which {before} were done before"
    done = count("cursor.done", cursor.get("done"), granted, least=before, most=frame.row_count)
    count("cursor.swallowed", cursor.get("swallowed", 0), f"{done} rows are done", most=done * ERRORS_PER_ROW)
    found = shared_values.refs_of("cursor.set", cursor.get("set", {}))
    try:
        output = msgspec.convert(cursor.get("output"), PayloadRef | None)
        artifacts = msgspec.convert(cursor.get("artifacts", []), list[PayloadRef])
    except msgspec.ValidationError as problem:
        refuse("cursor", sorted(cursor), f"its references cannot be read: {problem}")
    found += references.one("cursor.output", output, media_types=(ARROW_STREAM,), rows=done)
    return found + references.many("cursor.artifacts", artifacts)
