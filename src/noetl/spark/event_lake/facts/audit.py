"""The audit timeline: everything in an organization that somebody did or decided, in order. Routine work is left out.

A type that is new is in it until it is named as routine here: what nobody thought of must not be missing.
"""

from __future__ import annotations

from typing import Final

from noetl.model.catalogue import EVENT_TYPES
from noetl.spark.event_lake.facts.fact import OWNER, Fact, columns

_ROUTINE_BEGINNINGS: Final = ("step.", "command.", "loop.", "stage.", "frame.", "playbook.", "workflow.")
_ROUTINE: Final = (
    "task.created", "task.claimed", "task.started", "task.attempt_failed", "task.abandoned", "task.completed",
    "task.skipped", "partition.committed", "job.state_saved", "slot.claimed", "slot.succeeded", "slot.attempt_failed",
    "slot.abandoned", "slot.skipped", "slot.pruned", "backfill.advanced", "invalidation.processed",
)  # fmt: skip


def is_routine(event_type: str) -> bool:
    """Whether events of that type are the system's own work and in no audit timeline."""
    if event_type in ("playbook.failed", "playbook.completed"):
        return False
    return event_type in _ROUTINE or event_type.startswith(_ROUTINE_BEGINNINGS)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_LEFT_OUT: Final = ", ".join(_quoted(kind.name) for kind in EVENT_TYPES if is_routine(kind.name))
_SENTENCES: Final = ", ".join(
    f"{_quoted(kind.name)}, {_quoted(kind.sentence)}" for kind in EVENT_TYPES if not is_routine(kind.name)
)

_QUERY: Final = f"""
SELECT *, ingest_time AS recorded_at, event_time AS happened_at, aggregate_type AS subject_type,
    aggregate_id AS subject, meta AS details,
    coalesce(
        element_at(map({_SENTENCES}), event_type),
        CASE WHEN startswith(event_type, 'business.') THEN 'A fact of the user\\'s own business.' END
    ) AS sentence,
    coalesce(m_requested_by, m_asked_by, m_set_by, m_by) AS actor,
    coalesce(m_path, m_dag, m_name, node_name, CASE WHEN aggregate_type = 'dag' THEN substring(stream_id, 5) END,
        m_user_id) AS about
FROM e WHERE event_type NOT IN ({_LEFT_OUT})
"""  # noqa: S608 - ours

AUDIT: Final = Fact(
    name="noetl_audit",
    sentence="The audit timeline: one row for each thing somebody did or decided, and for each end of a run.",
    columns=columns(
        *OWNER,
        "recorded_at timestamp: When the ledger recorded it.",
        "happened_at timestamp: When it happened, as its producer says.",
        "event_type string: What happened.",
        "sentence string: The same in a sentence.",
        "actor string: Who did it, where an event says so.",
        "about string: The playbook, DAG, name or person it is about.",
        "subject_type string: The kind of thing it is about.",
        "subject string: The thing it is about.",
        "execution_id bigint: The execution, or the organization's own id.",
        "status string: The status it led to.",
        "error string: What went wrong.",
        "producer string: The process that recorded it.",
        "details string: All that the event says in short (JSON).",
        "event_id bigint: The event.",
        "shard int: Its shard in the ledger.",
        "position bigint: Its position there.",
        "day date: The day (UTC) on which its execution was asked for; of what belongs to none, on which it was recorded.",
    ),
    query=_QUERY,
)
