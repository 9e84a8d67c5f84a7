"""Which rows follow from which events: the declarations of the catalogue, asked by table.

The lists of types in SQL functions, in the ledger and in the folds come from here. All of them are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event_type import AttemptWord, EventType

_WRITTEN_BY: Final[dict[str, tuple[str, ...]]] = {
    "apply_open_work": ("execution_head", "command", "stage", "frame"),
    "apply_pipelines": (
        "dag_version",
        "dag_current_version",
        "dag_version_dataset",
        "job",
        "dataset",
        "dataset_version",
        "dataset_schema",
        "partition_version",
        "task",
        "task_input",
        "dataset_cursor",
        "operator_state",
        "outbox",
        "org",
        "app_user",
        "org_role",
        "org_role_membership",
    ),
    "apply_alerts": ("alert_rules", "alert", "delivery"),
    "apply_changes": ("data_invalidation", "backfill", "backfill_partition"),
    "apply_lineage": ("dataset_lineage", "column_lineage"),
    "apply_pins": ("pin", "retention_policy", "sweep", "retired_generation", "trimmed_version"),
    "apply_queries": ("dataset_reader", "query_audit"),
    "apply_schedules": ("schedule", "cron_slot"),
    "apply_views": ("view_version",),
}

APPLIED_BY: Final[dict[str, str]] = {table: name for name, tables in _WRITTEN_BY.items() for table in tables}
"""The SQL function that writes a table's rows, and no other does, within the append of the events they follow from."""

WRITTEN_BESIDE: Final = ("catalog", "event_archive", "archive_payload")
"""Tables whose rows are written by whoever appends the event, in the same transaction."""

LEASED: Final = ("command", "frame", "task")
"""Tables whose rows are leases that fences name."""

_OF_A_RUN: Final = frozenset({"execution", "command", "artifact", "loop", "stage", "frame", "checkpoint"})
"""Aggregates that end with their execution; all others outlive the run that caused them."""


def applied_by(kind: EventType) -> str | None:
    """Return the SQL function that changes the rows of a type; None where no row changes within the append itself."""
    functions = {APPLIED_BY[table] for table in kind.tables if table not in WRITTEN_BESIDE}
    if len(functions) > 1:
        raise ValueError(f"{kind.name} changes rows of {' and '.join(sorted(functions))}; a type has one")
    return functions.pop() if functions else None


def declared_types() -> tuple[str, ...]:
    """Return every type the append takes besides the user's own."""
    return _types(lambda kind: True)


def types_opening(table: str) -> tuple[str, ...]:
    """Return the types that may add rows of a table."""
    return _types(lambda kind: table in kind.opens)


def types_changing(table: str) -> tuple[str, ...]:
    """Return the types that may change rows of a table that stand."""
    return _types(lambda kind: table in kind.changes)


def types_ending(table: str) -> tuple[str, ...]:
    """Return the types that may remove rows of a table."""
    return _types(lambda kind: table in kind.ends)


def types_applied_by(function: str, aggregate: str | None = None) -> tuple[str, ...]:
    """Return the types whose rows a SQL function changes; of one aggregate, where the function tells them apart."""
    return _types(lambda kind: applied_by(kind) == function and aggregate in (None, kind.aggregate))


def types_with_rows() -> tuple[str, ...]:
    """Return the types whose rows change within the append itself."""
    return _types(lambda kind: applied_by(kind) is not None)


def types_projected(projection: str) -> tuple[str, ...]:
    """Return the types that change rows of a projection."""
    return _types(lambda kind: projection in kind.projections)


def types_steering() -> tuple[str, ...]:
    """Return the types that change what the planner knows of an execution."""
    return _types(lambda kind: kind.steers)


def types_of(aggregate: str) -> tuple[str, ...]:
    """Return the types of an aggregate."""
    return _types(lambda kind: kind.aggregate == aggregate)


def types_ending_executions() -> tuple[str, ...]:
    """Return the types that end their execution."""
    return _types(lambda kind: kind.ends_execution)


def types_closing_stages() -> tuple[str, ...]:
    """Return the types that end a stage alone; an execution's end closes its stages as well."""
    return _types(lambda kind: "stage" in kind.ends and not kind.ends_execution)


def types_overruling_holders() -> tuple[str, ...]:
    """Return the types that end work whoever holds it."""
    return _types(lambda kind: kind.overrules_holders)


def types_moving_lease(table: str) -> tuple[str, ...]:
    """Return the types after which whoever relied on a lease of this table cannot, of those that name its row.

    What opens a row takes no lease from anybody; what ends a stage or an execution names the stage or the execution.
    """
    of_many = {*types_ending_executions(), *types_closing_stages()}
    return _types(
        lambda kind: table in (*kind.changes, *kind.ends) and not kind.keeps_lease and kind.name not in of_many
    )


def types_of_attempts(*words: AttemptWord, at: str | None = None) -> tuple[str, ...]:
    """Return the types that say one of these things of attempts, at the work of one leased table if that is named."""
    return _types(lambda kind: kind.attempt in words and (at is None or at in kind.tables))


def types_outliving_executions() -> tuple[str, ...]:
    """Return the types that may stand after the end of the execution they carry."""
    return _types(lambda kind: kind.aggregate not in _OF_A_RUN)


def once_types() -> dict[str, str]:
    """Return the types that may stand once in an execution, each with the id it may stand once per."""
    return {kind.name: kind.once_per for kind in EVENT_TYPES if kind.once_per is not None}


def sql_texts(types: Iterable[str]) -> str:
    """Write types as a list of SQL texts."""
    return ", ".join(f"'{name}'" for name in types)


def _types(which: Callable[[EventType], bool]) -> tuple[str, ...]:
    return tuple(sorted(kind.name for kind in EVENT_TYPES if which(kind)))
