"""The rows of tasks, what they read, how far they consumed it and who is to be woken, from the events of `task/<id>`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, key_of, later, number, part, payload
from noetl.model.event import Event

_FREE: Final[Row] = {"lease_token": None}
_ENDED: Final = {
    "task.completed": "Completed",
    "task.skipped": "Skipped",
    "task.failed": "Failed",
    "task.cancelled": "Canceled",
}


def _created(tables: Tables, event: Event) -> None:
    meta, task_id, inputs = event.meta, _task_id(event), part(event, "inputs", [])
    if task_id in tables["task"]:
        return
    at = moment(event.ingest_time)
    nothing_yet = ("worker", "application_id", "job_tag", "error", "outputs", "logs_ref", "skipped_as", "started_at")
    tables.put(
        "task",
        {
            "task_id": task_id,
            **{name: identity(meta.get(name)) for name in ("job_id", "dag_version_id", "generation")},
            **{name: meta.get(name) for name in ("dag", "job", "dedupe_key", "partition_key", "runtime", "memo_key")},
            "execution_id": str(event.execution_id),
            "status": "Queued",
            "attempt": 0,
            "max_attempts": meta.get("max_attempts"),
            "inputs": inputs,
            "inputs_ref": payload(event),
            "lease_seconds": number(meta.get("lease_seconds")),
            "available_at": at,
            "cancel_requested": False,
            "created_event_id": str(event.event_id),
            "created_at": at,
            "ended_at": None,
            **dict.fromkeys(nothing_yet),
            **_FREE,
        },
    )
    for one in inputs:
        for read in one.get("parts", ()):
            tables.put(
                "task_input",
                {
                    "task_id": task_id,
                    "input_dataset_uuid": identity(one["dataset_uuid"]),
                    "input_dataset_version": identity(one["dataset_version"]),
                    "input_partition_key": read[0],
                    "input_version": read[1],
                },
            )
    _wake(tables, event, 1)


def _claimed(tables: Tables, event: Event) -> None:
    meta = event.meta
    _change(
        tables,
        event,
        status="Running",
        attempt=meta.get("attempt"),
        worker=meta.get("worker"),
        lease_token=identity(meta.get("lease_token")),
        lease_seconds=number(meta.get("lease_seconds")),
        application_id=None,
        job_tag=None,
        started_at=moment(event.ingest_time),
    )


def _started(tables: Tables, event: Event) -> None:
    _change(tables, event, application_id=event.meta.get("application_id"), job_tag=event.meta.get("job_tag"))


def _freed(tables: Tables, event: Event) -> None:
    delay = event.meta.get("delay_seconds") or 0
    row = _change(
        tables, event, status="Failed", available_at=later(event, delay), error=event.error, ended_at=None, **_FREE
    )
    if row is not None:
        row["logs_ref"] = payload(event) or row["logs_ref"]
        _wake(tables, event, row["attempt"] + 1, delay)


def _retried(tables: Tables, event: Event) -> None:
    row = _change(
        tables,
        event,
        status="Queued",
        available_at=moment(event.ingest_time),
        cancel_requested=False,
        ended_at=None,
        outputs=None,
        skipped_as=None,
        **_FREE,
    )
    if row is not None:
        row["max_attempts"] += event.meta.get("extra_attempts", 0)
        _wake(tables, event, row["attempt"] + 1)


def _cancel_requested(tables: Tables, event: Event) -> None:
    _change(tables, event, cancel_requested=True)


def _ended(tables: Tables, event: Event) -> None:
    row = _change(
        tables,
        event,
        status=_ENDED[event.event_type],
        available_at=None,
        error=event.error,
        outputs=part(event, "outputs"),
        skipped_as=identity(event.meta.get("as_task")),
        ended_at=moment(event.ingest_time),
        **_FREE,
    )
    if row is not None:
        row["logs_ref"] = payload(event) or row["logs_ref"]
    if event.event_type in ("task.completed", "task.skipped"):
        for cursor in part(event, "cursors", []):
            _advance(tables, cursor)


def _advance(tables: Tables, cursor: Row) -> None:
    row = {
        **{name: identity(cursor[name]) for name in ("dataset_uuid", "dataset_version", "consumer")},
        "partition_key": cursor["partition_key"],
        "version": cursor["version"],
    }
    known = tables["dataset_cursor"].setdefault(key_of("dataset_cursor", row), row)
    known["version"] = max(known["version"], row["version"])


def _change(tables: Tables, event: Event, **changes: Any) -> Row | None:
    row = tables["task"].get(_task_id(event))
    if row is not None:
        row |= changes
    return row


def _wake(tables: Tables, event: Event, attempt: int, delay_seconds: float = 0) -> None:
    name = f"task_wakeup:{_task_id(event)}:{attempt}"
    tables.put_outbox(event, name, "enqueue_task", {"task_id": _task_id(event), "attempt": attempt}, delay_seconds)


def _task_id(event: Event) -> str:
    return str(identity(event.stream_id.removeprefix("task/")))


TASK_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "task.created": _created,
    "task.claimed": _claimed,
    "task.started": _started,
    "task.attempt_failed": _freed,
    "task.abandoned": _freed,
    "task.retried": _retried,
    "task.cancel_requested": _cancel_requested,
    **dict.fromkeys(_ENDED, _ended),
}
