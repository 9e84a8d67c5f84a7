"""Named points around every durable write where a test may stop, slow or kill the process.

In production each `reach` is one dictionary look-up that finds nothing. A test arms points through the environment:
`NOETL_FAULT=append.after_heads=kill` (also `pause`, `raise`; several joined by commas). A paused process writes the
point's name to the file descriptor in `NOETL_FAULT_FD`, if given, and stops itself until it gets SIGCONT.
"""

from __future__ import annotations

import os
import signal

POINTS: dict[str, str] = {
    "query.before_record": "a query came to its end, nothing of it is recorded",
    "query.after_record": "a query is recorded, its caller has not heard of it",
    "curated.before_record": "the rows of a curated view are computed, the read is not on record",
    "curated.after_record": "a read of a curated view is on record, its reader has nothing yet",
    "append.before_begin": "nothing is sent yet",
    "append.before_heads": "transaction open, keys and inline rows written, no shard head taken",
    "append.after_heads": "events are numbered and inserted, shard heads held, not committed",
    "append.after_commit": "committed, the caller has not been told",
    "decide.lengthy": "a lengthy decision is noted as begun, nothing of it is evaluated",
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
    "waiting.before_publish": "decided events wait, nothing of them is in the stream",
    "waiting.after_publish": "decided events are in the stream, how far is not noted",
    "fact.before_publish": "a fact is to be recorded, nothing of it is sent",
    "fact.after_publish": "a fact is acknowledged by the stream, its caller does not know yet",
    "noted.before_name": "facts are acknowledged, the file that will note them has no name yet",
    "noted.before_drop": "noted facts are in the ledger, their notes are still there",
    "noted.before_replace": "what is still needed of a file of notes is written anew, not under its name",
    "noted.after_drop": "notes of facts that are in the ledger are gone",
    "lost.before_record": "facts are known to be lost, nobody but this node knows",
    "lost.after_record": "facts are recorded as lost in the database, nobody was told",
    "materialize.before_write": "messages are delivered, nothing of them is in the ledger",
    "materialize.after_write": "messages are in the ledger, their checkpoint too, nobody was told",
    "materialize.before_acknowledge": "readers of the ledger are told, the stream does not know yet",
    "change.after_begin": "all appends are stopped for a change of the write path, nothing is drained",
    "change.after_drain": "what was in the stream is in the ledger, the write path is not changed yet",
    "change.after_end": "the write path is changed, whoever asked for it does not know yet",
    "relay.before_publish": "committed events are read, the stream has none of them",
    "relay.after_publish": "the stream has events, the cursor of their shards has not moved",
    "relay.after_cursor": "the stream has events, and the cursors of their shards have moved",
    "run.before_request": "an emission is decided, nothing is written",
    "run.after_request": "an emission and its task are written, nobody was told",
    "run.before_end": "a run is quiet, its end is not written",
    "run.after_end": "the end of a run is written, nobody was told",
    "slot.before_claim": "planned moments are due, no lease is written",
    "slot.after_claim": "leases on slots are written, none of them runs yet",
    "slot.after_effect": "what a slot starts is started, the slot does not know yet",
    "slot.before_end": "a slot has been run, its end is not recorded",
    "slot.after_end": "the end of a slot is recorded, its runner does not know yet",
    "slot.before_stale": "a lease on a slot ran out, nothing is written about it",
    "slot.after_stale": "a slot was taken back, nobody was told",
    "schedule.before_record": "a change of schedules is decided, nothing is written",
    "schedule.after_record": "a change of schedules is written, nobody was told",
    "invalidation.before_record": "what an invalidation asks for is known, nothing is written",
    "invalidation.after_record": "an invalidation and its tasks are written, nobody was told",
    "backfill.before_request": "the partitions of a backfill are chosen, the ledger does not know",
    "backfill.after_request": "a backfill is requested, none of its partitions is queued",
    "backfill.before_queue": "the next partitions of a backfill are about to be queued",
    "backfill.after_queue": "further partitions of a backfill are queued",
    "backfill.before_advance": "the next tasks of a backfill are wanted, none of them is written",
    "backfill.after_advance": "the next tasks of a backfill are written",
    "backfill.before_change": "a backfill is to be paused, resumed or cancelled, nothing is written",
    "backfill.after_change": "a backfill is paused, resumed or cancelled, nobody was told",
    "backfill.before_end": "a backfill has nothing left to do, its end is not written",
    "backfill.after_end": "the end of a backfill is written, its run has not ended",
    "alert.before_record": "an alert is to be raised or resolved, nothing is written",
    "alert.after_record": "an alert and the messages about it are written, nobody was told",
    "delivery.before_claim": "a sender chose a message, no lease is written",
    "delivery.after_claim": "the lease on a message is written, its sender does not know yet",
    "delivery.before_send": "a message is about to be sent, its channel has nothing",
    "delivery.after_send": "the channel took a message, the ledger does not know",
    "delivery.before_record": "the end of an attempt to send is known, nothing is written",
    "delivery.after_record": "the end of an attempt to send is recorded, its sender does not know yet",
    "lake.before_files": "a batch of the event lake is begun, none of its files is written",
    "lake.after_files": "the files of a batch of the event lake are written, nobody was told",
    "lake.before_commit": "the files of a batch of the event lake are known, their commit is not asked for",
    "lake.after_commit": "a batch of the event lake is committed, Spark's checkpoint does not say so",
    "lake.before_compacted": "files of the event lake are written anew as few, their commit is not asked for",
    "rows.after_claim": "rows are claimed in the user's open transaction, the ledger knows nothing",
    "rows.after_dispatch": "the frame with its rows is in the ledger, the user's claim is not committed",
    "rows.after_work": "a row's work is done, the frame is not committed",
    "externalize.before_store": "nothing is stored yet",
    "externalize.after_spool": "bytes are hashed and spooled locally, not in the store",
    "externalize.after_store": "the object is in the store, no event refers to it yet",
    "payload.after_durable": "a payload is in the durable store, no nearer tier has it",
    "shm.before_write": "a table is durable, shared memory has nothing of it",
    "shm.after_write": "a table is in shared memory, no hint names it",
    "shm.after_hint": "the node knows where a table lies, its writer has not gone on",
    "shm.before_unlink": "a region's time is over, it is there but no hint names it",
    "disk.before_rename": "a payload is on the node's disk, not under its name",
    "project.before_rows": "events are folded, nothing is written",
    "project.after_rows": "rows are written, the checkpoint is not",
    "project.before_commit": "rows and checkpoint are written, not committed",
    "project.after_commit": "committed",
    "epoch.after_record": "the ledger knows of an epoch, the epoch is not marked as told",
    "snapshot.before_store": "the state is folded, the snapshot's bytes are not stored",
    "snapshot.after_store": "the bytes are stored, the snapshot row is not",
    "snapshot.after_commit": "the snapshot row is committed",
    "archive.after_objects": "archived objects are stored, the manifest event is not appended",
    "archive.after_manifest": "the manifest event is appended, the partition is still there",
    "collect.after_tombstone": "the object is condemned, not deleted",
    "collect.after_delete": "the object is deleted",
    "openlineage.before_send": "events about tasks are made, their receiver has none of them",
    "openlineage.after_send": "the receiver has events about tasks, the cursor has not moved",
    "openlineage.after_cursor": "the receiver has events about tasks, and the cursor has moved",
    "retention.before_event": "something is to be let go, the ledger does not know",
    "retention.after_event": "the ledger says that it is let go, its files and rows are there",
    "retention.after_files": "files are deleted, they are not marked as gone",
    "retention.after_mark": "files are deleted and marked as gone",
    "retention.after_rows": "some rows of history are deleted, perhaps not all",
    "view.before_rows": "a batch of a view is known, none of its rows is made",
    "view.after_rows": "a batch's rows are made, nobody was told",
    "view.before_apply": "a batch's rows are told, none of them is written",
    "view.before_commit": "a batch's rows and its barrier are written, not committed",
    "view.after_commit": "a batch's rows and its barrier stand, its driver does not know yet",
    "view.after_barrier": "a batch stands and its driver knows, Spark has not marked it as done",
    "view.before_swap": "a version of a view came far enough to serve, nothing is written",
    "view.after_swap": "a version of a view serves, the rows of the one before are there",
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
