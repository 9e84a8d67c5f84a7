"""What `noetl tasks` says of tasks: as text for a person, as facts for a program."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.cli.terminal.tables import first_line, rendered

if TYPE_CHECKING:
    from noetl.pipelines.tasks.actions import AttemptStory
    from noetl.pipelines.tasks.outbox import DeadRow
    from noetl.pipelines.tasks.rows import TaskRow

_SHOWN_PARTS = 20
_HIDDEN = frozenset({"lease_token", "inputs", "inputs_ref", "logs_ref"})


class Shown(NamedTuple):
    """One task with everything that is known about it."""

    task: TaskRow
    inputs: list[dict[str, Any]]
    attempts: list[AttemptStory]
    names: dict[str, str]
    """Datasets by their ids."""


def status_of(task: TaskRow) -> str:
    """Return how a task stands; one that failed and will be tried again is retrying."""
    return "Retrying" if task.status == "Failed" and task.available_at is not None else task.status


def task_facts(task: TaskRow) -> dict[str, Any]:
    """Return a task as plain values; ids of 64 bits as text."""
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(task)
    kept = {name: value for name, value in told.items() if name not in _HIDDEN}
    ids = {name: str(kept[name]) for name in ("execution_id", "created_event_id")}
    return {**kept, **ids, "status": status_of(task)}


def tasks_table(found: Sequence[TaskRow]) -> str:
    """Return tasks as a table."""
    rows = [
        (
            task.task_id[:8],
            f"{task.dag}.{task.job}",
            task.partition_key,
            status_of(task).lower(),
            f"{task.attempt} of {task.max_attempts}",
            f"{task.created_at:%Y-%m-%d %H:%M:%S}",
            _took(task.started_at, task.ended_at),
            first_line(task.error),
        )
        for task in found
    ]
    return rendered(("task", "job", "partition", "status", "attempt", "created", "took", "error"), rows)


def shown_facts(shown: Shown) -> dict[str, Any]:
    """Return a task with its attempts as plain values."""
    import msgspec

    attempts: list[dict[str, Any]] = [msgspec.to_builtins(one) for one in shown.attempts]
    return {
        **task_facts(shown.task),
        "inputs": [{**one, "dataset": shown.names.get(one["dataset_uuid"])} for one in shown.inputs],
        "attempts": [
            {**{name: value for name, value in one.items() if name != "told"}, **one["told"]} for one in attempts
        ],
    }


def shown_text(shown: Shown) -> str:
    """Return a task as text."""
    task = shown.task
    head = [
        f"task {task.task_id}: {status_of(task)}",
        f"job {task.dag}.{task.job}, partition {task.partition_key}, DAG version {task.dag_version_id[:8]},"
        f" on {task.runtime}",
        f"execution {task.execution_id}, created {task.created_at:%Y-%m-%d %H:%M:%S}",
    ]
    if task.skipped_as is not None:
        had = "made its outputs of newer inputs" if task.attempt else "had the same inputs and configuration"
        head.append(f"skipped: task {task.skipped_as} {had}")
    if task.cancel_requested and task.open:
        head.append("it is asked to stop")
    if task.error:
        head.append(f"error: {task.error}")
    parts = [_attempts(shown), _inputs(shown), _outputs(shown), _checks(shown)]
    return "\n".join([*head, ""]) + "".join(f"\n{part}" for part in parts if part)


def dead_facts(one: DeadRow) -> dict[str, Any]:
    """Return a dead row of the outbox as plain values."""
    import msgspec

    return {**msgspec.to_builtins(one), "execution_id": str(one.execution_id)}


def dead_table(dead: Sequence[DeadRow]) -> str:
    """Return dead rows of the outbox as a table."""
    rows = [
        (
            one.outbox_id[:8],
            one.kind,
            str(one.execution_id),
            str(one.attempts),
            f"{one.created_at:%Y-%m-%d %H:%M:%S}",
            one.last_error or "",
        )
        for one in dead
    ]
    return rendered(("row", "kind", "execution", "tries", "created", "error"), rows)


def _attempts(shown: Shown) -> str:
    rows = [
        (
            str(one.attempt),
            one.outcome,
            f"{one.claimed_at:%Y-%m-%d %H:%M:%S}",
            _took(one.claimed_at, one.ended_at),
            one.worker.partition("/cluster/")[2] or one.worker,
            one.application_id or "-",
            "yes" if one.logs is not None else "-",
            one.error or "",
        )
        for one in shown.attempts
    ]
    names = ("attempt", "outcome", "claimed", "took", "worker", "Spark application", "log", "error")
    return rendered(names, rows) if rows else "no attempt yet\n"


def _inputs(shown: Shown) -> str:
    rows = [
        (one["alias"], shown.names.get(one["dataset_uuid"], one["dataset_uuid"]), *_part(part))
        for one in shown.inputs
        for part in one.get("parts", ())
    ]
    return _some(("input", "dataset", "partition", "version", "read after"), rows)


def _outputs(shown: Shown) -> str:
    rows = [
        (
            str(one.get("output", 0)),
            shown.names.get(one["dataset_uuid"], one["dataset_uuid"]),
            one["partition_key"],
            str(one["version"]),
            f"{one.get('rows', 0):,}",
        )
        for one in shown.task.outputs or ()
    ]
    return _some(("output", "dataset", "partition", "version", "rows"), rows)


def _checks(shown: Shown) -> str:
    told = next((one.told["checks"] for one in reversed(shown.attempts) if one.told.get("checks")), ())
    rows = [
        (one["label"], "passed" if one["passed"] else f"failed ({one['severity']})", one.get("detail", ""))
        for one in told
    ]
    return _some(("check", "came out", "detail"), rows)


def _some(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    more = len(rows) - _SHOWN_PARTS
    return rendered(columns, rows[:_SHOWN_PARTS]) + (f"{more} more; --json prints all\n" if more > 0 else "")


def _part(part: Sequence[Any]) -> tuple[str, str, str]:
    key, version, *after = part
    return str(key), str(version), str(after[0]) if after and after[0] else "-"


def _took(began: datetime | None, ended: datetime | None) -> str:
    return "-" if began is None or ended is None else f"{(ended - began).total_seconds():.1f} s"
