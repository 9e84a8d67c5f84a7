"""Whether a recorded event was anybody's to record: the rows before it go in, what is wrong comes out.

These rules know leases and nothing of fences: whoever forgets a fence is found when it matters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from noetl.kernel.ledger.memory_work import MemoryWork
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import Event
from noetl.model.stream import Scope

Key = tuple[str, int, str]

_ENDS_OF_COMMANDS: Final = frozenset({"command.completed", "command.failed"})
_BY_COMMAND_HOLDER: Final = frozenset(
    {"command.attempt_failed", "command.started", "command.returned", "command.stalled", "command.resumed"}
)
_BY_FRAME_HOLDER: Final = frozenset(
    {"frame.committed", "frame.checkpointed", "frame.attempt_failed", "loop.shard.done", "loop.shard.attempt_failed"}
)
_ENDS_OF_FRAMES: Final = frozenset({"frame.failed", "loop.shard.failed"})
_LOST_FRAMES: Final = frozenset({"frame.abandoned", "loop.shard.abandoned"})
DISPATCHED: Final = frozenset({"frame.dispatched", "loop.shard.enqueued"})
SLOT_LOST: Final = frozenset({"command.abandoned", "command.attempt_failed", "command.returned"})


class Seen(NamedTuple):
    """A leased row as it stood before a transition."""

    status: str
    attempt: int
    token: str | None
    worker: str | None
    lasts: bool


def types_in(transition: Transition) -> set[str]:
    """Return the types of events in a transition."""
    return {draft.event_type for append in transition.appends for draft in append.drafts}


def seen(work: MemoryWork, scope: Scope, transition: Transition) -> dict[Key, Seen | None]:
    """Return the rows that a transition speaks of."""
    found: dict[Key, Seen | None] = {}
    for append in transition.appends:
        for draft in append.drafts:
            if draft.command_id is not None:
                _look(found, work, scope, ("command", draft.execution_id, draft.command_id))
            if draft.frame_id is not None:
                _look(found, work, scope, ("frame", draft.execution_id, str(draft.frame_id)))
            if draft.event_type == "execution.requested" and draft.parent_execution_id is not None:
                parent = draft.parent_execution_id
                _look(found, work, scope, ("execution_head", parent, str(parent)))
    return found


def _look(found: dict[Key, Seen | None], work: MemoryWork, scope: Scope, key: Key) -> None:
    table, execution_id, name = key
    row = work.row(scope, table, execution_id, name)
    if row is None:
        found[key] = None
    elif table == "execution_head":
        found[key] = Seen("OPEN", 0, None, None, lasts=False)
    else:
        lease = work.lease(scope, table, execution_id, name)
        lasts = lease is not None and lease.until > work.now()
        found[key] = Seen(row["status"], row["attempt"], row["lease_token"], row.get("worker"), lasts)


def wrong(event: Event, before: Mapping[Key, Seen | None], beside: Collection[str]) -> str | None:
    """Say what is wrong with an event; `beside` are the types recorded in the same transition."""
    kind, attempt = event.event_type, event.meta.get("attempt")
    if kind == "command.claimed":
        row = before.get(("command", event.execution_id, event.command_id or ""))
        return None if row is None else _granted(row, attempt, "PENDING")
    if kind in _ENDS_OF_COMMANDS or kind in _BY_COMMAND_HOLDER:
        return _ended(event, before.get(("command", event.execution_id, event.command_id or "")))
    if kind == "command.abandoned":
        return _lost(before.get(("command", event.execution_id, event.command_id or "")), attempt, "CLAIMED")
    if kind in DISPATCHED:
        return _dispatched(event, before)
    frame = before.get(("frame", event.execution_id, str(event.frame_id)))
    if kind in _BY_FRAME_HOLDER:
        return _held(frame, attempt, "LEASED")
    if kind in _ENDS_OF_FRAMES or kind in _LOST_FRAMES:
        was_lost = kind in _LOST_FRAMES or "was lost" in (event.error or "")
        if was_lost and not SLOT_LOST.isdisjoint(beside):
            is_theirs = frame is not None and (frame.status, frame.attempt) == ("LEASED", attempt)
            return None if is_theirs else "the frame is not this attempt's"
        return _lost(frame, attempt, "LEASED") if was_lost else _held(frame, attempt, "LEASED")
    if kind == "execution.requested" and event.parent_execution_id is not None:
        parent = event.parent_execution_id
        return "its parent has ended" if before.get(("execution_head", parent, str(parent))) is None else None
    return None


def _granted(row: Seen, attempt: Any, free: str) -> str | None:
    if row.status != free or row.token is not None:
        return f"{row.worker} holds it under attempt {row.attempt}, and it is granted again"
    return None if attempt == row.attempt + 1 else f"attempt {attempt} follows attempt {row.attempt}"


def _held(row: Seen | None, attempt: Any, status: str) -> str | None:
    if row is None or row.status != status:
        return "nobody holds it any more"
    if row.attempt != attempt:
        return f"{row.worker} holds it under attempt {row.attempt}, and attempt {attempt} writes"
    return None if row.lasts else f"the lease of attempt {attempt} has run out"


def _lost(row: Seen | None, attempt: Any, status: str) -> str | None:
    if row is None or row.status != status or row.attempt != attempt:
        return f"attempt {attempt} is taken back, and does not hold it"
    return "it is taken back while its lease lasts" if row.lasts else None


def _ended(event: Event, row: Seen | None) -> str | None:
    if row is not None and row.status == "SUSPENDED":
        return None
    if event.event_type == "command.failed" and b"its worker was lost" in _text(event.result):
        return _lost(row, event.meta.get("attempt"), "CLAIMED")
    return _held(row, event.meta.get("attempt"), "CLAIMED")


def gave_up(event: Event) -> bool:
    """Tell whether a command ended because its workers were lost too often."""
    return b"attempts_exhausted" in _text(event.result)


def _text(value: Any) -> bytes:
    return repr(value).encode()


def _dispatched(event: Event, before: Mapping[Key, Seen | None]) -> str | None:
    frame = before.get(("frame", event.execution_id, str(event.frame_id)))
    attempt, worker = event.meta["attempt"], event.meta["worker"]
    slot = before.get(("command", event.execution_id, event.command_id or ""))
    if slot is None or slot.status != "CLAIMED" or not slot.lasts or slot.worker != worker:
        return f"{worker} is given a frame of a slot that is not its own"
    if attempt == 1:
        return None if frame is None else "a frame is made that is there already"
    return "a frame that has ended is handed out" if frame is None else _granted(frame, attempt, "FREE")
