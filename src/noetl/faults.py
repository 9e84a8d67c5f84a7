"""Named points around every durable write where a test may stop, slow or kill the process.

In production each `reach` is one dictionary look-up that finds nothing. A test arms points through the environment:
`NOETL_FAULT=append.after_heads=kill` (also `pause`, `raise`; several joined by commas). A paused process writes the
point's name to the file descriptor in `NOETL_FAULT_FD`, if given, and stops itself until it gets SIGCONT.
"""

from __future__ import annotations

import os
import signal

POINTS: dict[str, str] = {
    "append.before_begin": "nothing is sent yet",
    "append.before_heads": "transaction open, keys and inline rows written, no shard head taken",
    "append.after_heads": "events are numbered and inserted, shard heads held, not committed",
    "append.after_commit": "committed, the caller has not been told",
    "decide.before_record": "a decision is made, nothing of it is sent",
    "decide.after_record": "a decision is recorded, its maker has not gone on",
    "claim.before_record": "a worker chose a command, no lease is written",
    "claim.after_record": "the lease is written, the worker does not know yet",
    "complete.before_record": "a command's work is done, nobody was told",
    "frame.before_commit": "a frame's rows are worked off, its end is not recorded",
    "frame.after_commit": "a frame's end is recorded, its worker does not know yet",
    "reap.before_record": "a lease ran out, nothing is written about it",
    "reap.after_record": "a lease was taken back, nobody was told",
    "task.before_create": "tasks are wanted, none of them is written",
    "task.after_create": "tasks are written, what asked for them is not marked",
    "task.before_claim": "a worker chose a task, no lease is written",
    "task.after_claim": "the lease on a task is written, the worker does not know yet",
    "task.after_started": "where an attempt will run is recorded, its work has not begun",
    "task.before_commit": "a task's files are written, its manifests are not",
    "task.after_manifest": "a task's manifests are stored, nothing is visible",
    "task.after_commit": "a task's outputs are visible, its worker does not know yet",
    "task.before_end": "an attempt came to nothing, the ledger does not know",
    "task.after_end": "the end of an attempt is recorded, its worker does not know yet",
    "task.before_reap": "a lease on a task ran out, nothing is written about it",
    "task.after_reap": "a task was taken back, nobody was told",
    "outbox.before_deliver": "rows of the outbox are leased, nothing is delivered",
    "outbox.after_deliver": "rows are delivered, they are not marked",
    "outbox.after_mark": "rows are delivered and marked",
    "run.before_request": "an emission is decided, nothing is written",
    "run.after_request": "an emission and its task are written, nobody was told",
    "run.before_end": "a run is quiet, its end is not written",
    "run.after_end": "the end of a run is written, nobody was told",
    "rows.after_claim": "rows are claimed in the user's open transaction, the ledger knows nothing",
    "rows.after_dispatch": "the frame with its rows is in the ledger, the user's claim is not committed",
    "rows.after_work": "a row's work is done, the frame is not committed",
    "externalize.before_store": "nothing is stored yet",
    "externalize.after_spool": "bytes are hashed and spooled locally, not in the store",
    "externalize.after_store": "the object is in the store, no event refers to it yet",
    "project.before_rows": "events are folded, nothing is written",
    "project.after_rows": "rows are written, the checkpoint is not",
    "project.before_commit": "rows and checkpoint are written, not committed",
    "project.after_commit": "committed",
    "snapshot.before_store": "the state is folded, the snapshot's bytes are not stored",
    "snapshot.after_store": "the bytes are stored, the snapshot row is not",
    "snapshot.after_commit": "the snapshot row is committed",
    "archive.after_objects": "archived objects are stored, the manifest event is not appended",
    "archive.after_manifest": "the manifest event is appended, the partition is still there",
    "collect.after_tombstone": "the object is condemned, not deleted",
    "collect.after_delete": "the object is deleted",
}
"""Every point by name, with what is true there."""


class FaultInjected(RuntimeError):
    """A test asked for this failure."""


def reach(point: str) -> None:
    """Do what a test armed for this point; nothing otherwise."""
    action = _armed.get(point)
    if action is None:
        return
    descriptor = os.environ.get("NOETL_FAULT_FD")
    if descriptor:
        os.write(int(descriptor), point.encode() + b"\n")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)
    if action == "raise":
        raise FaultInjected(point)


def arm(spec: str) -> None:
    """Arm points from a text such as `append.after_heads=kill,project.after_rows=raise`; an empty text disarms all."""
    _armed.clear()
    for part in filter(None, spec.split(",")):
        point, _, action = part.partition("=")
        if point not in POINTS or action not in {"kill", "pause", "raise"}:
            raise ValueError(f"unknown fault {part!r}")
        _armed[point] = action


_armed: dict[str, str] = {}
arm(os.environ.get("NOETL_FAULT", ""))
