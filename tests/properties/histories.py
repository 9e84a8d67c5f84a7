"""Histories for property tests: what a ledger may hold, the plausible and the implausible, with versions and positions.

`histories()` draws whole histories; a `Chronicle` writes one by hand. Both check every event as the ledger would.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from noetl.model.catalogue import event_type
from noetl.model.event import Draft, Event
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope, Stream
from noetl.model.validate import validate
from noetl.testing.samples.drafts import PRODUCER

HOME = Scope("default", "default")
NEIGHBOUR = Scope("acme", "default")
FIRST_ID = 604_876_797_720_658_689
INVOICE_POSTED = "business.invoice.posted"
NOTE_ADDED = "business.note.added"

_NOON = datetime(2026, 5, 16, 12, tzinfo=UTC)

Move = dict[str, Any]
"""What to record next: `scope`, `execution_id`, `event_type`, optionally `path` (where), and fields of the event."""


class Chronicle:
    """A ledger without storage: gives events their ids, dense stream versions and positions per shard."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._versions: dict[Stream, int] = {}
        self._positions: dict[int, int] = {}

    def add(
        self,
        kind: str,
        *,
        execution_id: int = FIRST_ID,
        scope: Scope = HOME,
        path: str | None = None,
        **fields: Any,
    ) -> Event:
        """Record an event in the stream of its aggregate, or at another path if told so."""
        found = event_type(kind)
        assert found is not None, kind
        number = len(self.events) + 1
        stream = scope.stream(path or _own_path(kind, execution_id, fields))
        draft = Draft(
            event_id=FIRST_ID + number * 4096,
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            execution_id=execution_id,
            stream_id=stream.stream_id,
            aggregate_type=found.aggregate,
            aggregate_id=fields.pop("aggregate_id", stream.stream_id.rpartition("/")[2]),
            event_type=kind,
            schema_name=fields.pop("schema_name", found.schema_name),
            schema_version=1,
            # Every fourth event falls on a whole second, which some formatters shorten.
            event_time=_NOON + timedelta(microseconds=number * 250_000),
            producer=PRODUCER,
            idempotency_key=f"key-{number}" if found.retried else None,
            **fields,
        )
        validate(stream, [draft])
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        position = self._positions[stream.shard] = self._positions.get(stream.shard, 0) + 1
        event = Event(
            **{name: getattr(draft, name) for name in Draft.__struct_fields__},
            stream_version=version,
            shard=stream.shard,
            position=position,
            ingest_time=draft.event_time,
        )
        self.events.append(event)
        return event


def payload(name: str, scope: Scope = HOME) -> PayloadRef:
    """Return a reference to a payload that nobody stored."""
    digest = name.encode().hex().rjust(64, "0")
    return PayloadRef(
        uri=payload_uri(scope.tenant_id, scope.organization_id, digest),
        sha256=digest,
        media_type="application/json",
        bytes=len(name),
        stored_sha256=digest,
    )


def changed(event: Event, **fields: Any) -> Event:
    """Return the event with other fields."""
    return msgspec.structs.replace(event, **fields)


def _own_path(kind: str, execution_id: int, fields: dict[str, Any]) -> str:
    family = kind.partition(".")[0]
    for owner, id_field in (
        ("stage", "stage_id"),
        ("frame", "frame_id"),
        ("loop", "loop_id"),
        ("command", "command_id"),
    ):
        if family == owner:
            return f"execution/{execution_id}/{owner}/{fields[id_field]}"
    if kind == INVOICE_POSTED:
        return f"business_object/invoice/{fields['aggregate_id']}"
    return f"execution/{execution_id}"


_counts = st.integers(0, 5)
_attempts = st.integers(1, 3)


@st.composite
def _fields_of(draw: st.DrawFn, kind: str, ids: Move) -> Move:
    """Draw what an event of that type carries besides its ids."""
    fields: Move = {}
    if kind == "frame.dispatched":
        fields["meta"] = {"attempt": draw(_attempts), "worker": draw(st.sampled_from("ab")), "row_count": draw(_counts)}
        if draw(st.booleans()):
            fields["context"] = {"cursor": {"first": draw(_counts), "share": 0.5}}
            fields["payload_ref"] = payload("rows", ids["scope"])
    elif kind == "frame.committed":
        fields["meta"] = {"attempt": draw(_attempts), "row_count": 5, "failed_count": draw(_counts)}
        fields["payload_ref"] = payload("result", ids["scope"])
    elif kind.startswith("frame.") or kind in {"command.claimed", "command.attempt_failed"}:
        fields["meta"] = {"attempt": draw(_attempts)}
        fields["error"] = draw(st.sampled_from([None, "boom", "zerbrochen \N{COLLISION SYMBOL}"]))
    elif kind == "loop.started":
        modes = st.sampled_from(["sequential", "parallel", "cursor", "fanout"])
        fields["meta"] = {"collection_size": draw(st.none() | _counts), "mode": draw(modes)}
    elif kind == "loop.fanout.started":
        fields["meta"] = {"total_shards": draw(_counts)}
    elif kind == "loop.done":
        fields["result"] = {"status": "ok", "context": {"total": draw(_counts), "completed": 1, "failed": 0}}
    elif kind == "loop.fanin.completed":
        fields["result"] = {"status": "partial", "context": {"total": 2, "done": 1, "failed": 1}}
    elif kind == "stage.opened":
        fields["meta"] = {"kind": "loop", "dsl_ref": "each"}
    elif kind == "stage.closed":
        fields["status"] = draw(st.sampled_from(["completed", "failed", "open"]))
    elif kind == "command.issued":
        fields["meta"] = {"tool_kind": "python"}
    elif kind == INVOICE_POSTED:
        fields["meta"] = {"amount": draw(_counts)}
    return fields


_KINDS = (
    *("execution.requested", "playbook.initialized", "workflow.initialized"),
    *("playbook.completed", "workflow.failed", "execution.cancelled", "execution.failed"),
    *("step.entered", "step.exited", "step.skipped", NOTE_ADDED, INVOICE_POSTED),
    *("command.issued", "command.claimed", "command.attempt_failed", "command.completed", "command.failed"),
    *("loop.started", "loop.item", "loop.done", "loop.fanout.started", "loop.fanin.completed"),
    *("loop.shard.enqueued", "loop.shard.done", "loop.shard.failed", "stage.opened", "stage.closed"),
    *("frame.dispatched", "frame.checkpointed", "frame.committed"),
    *("frame.abandoned", "frame.attempt_failed", "frame.failed"),
)


@st.composite
def _stray(draw: st.DrawFn) -> Move:
    """Draw any event the ledger would accept: out of order, after the end, in a stream that is not its own."""
    kind = draw(st.sampled_from(_KINDS))
    scope = draw(st.sampled_from([HOME, NEIGHBOUR]))
    execution_id = FIRST_ID + draw(st.integers(0, 2))
    move: Move = {
        "scope": scope,
        "execution_id": execution_id,
        "kind": kind,
        "node_name": draw(st.sampled_from(["each", "other"])),
        "stage_id": draw(st.integers(1, 2)),
        "frame_id": draw(st.integers(1, 3)),
        "loop_id": draw(st.integers(1, 2)),
        "command_id": "c1",
        "shard_id": "s1",
        "current_index": 0,
        "aggregate_id": draw(st.sampled_from(["i1", "i2"])),
    }
    if kind.startswith("command.") and draw(st.booleans()):
        move["stage_id"] = move["frame_id"] = None
    if kind != INVOICE_POSTED:  # all events of one invoice must stand in one shard
        paths = ["", "/frame/1", "/frame/2", "/loop/1", "/stage/1"]
        own, elsewhere = [f"execution/{execution_id}{path}" for path in paths], ["elsewhere", "execution/01/loop/1"]
        move["path"] = draw(st.sampled_from([None, None, None, None, *own, *elsewhere]))
    return {**move, **draw(_fields_of(kind, move))}


@st.composite
def _run(draw: st.DrawFn) -> list[Move]:
    """Draw one sensible execution: a framed loop with retries and lost leases, a fan-out, late events after the end."""
    base: Move = {
        "scope": draw(st.sampled_from([HOME, NEIGHBOUR])),
        "execution_id": FIRST_ID + draw(st.integers(0, 2)),
        "node_name": "each",
    }
    loop, stage = {"loop_id": draw(st.integers(1, 3))}, {"stage_id": draw(st.integers(1, 2))}
    fanout = {"loop_id": draw(st.integers(4, 5)), "node_name": "shards"}
    steps: list[tuple[str, Move]] = [("execution.requested", {}), ("playbook.initialized", {"catalog_id": "c"})]
    steps += [("loop.started", loop), ("stage.opened", {**loop, **stage})]
    for frame_id in range(1, draw(st.integers(0, 3)) + 1):
        frame = {**loop, **stage, "frame_id": frame_id}
        for setback in draw(st.lists(st.sampled_from(["frame.abandoned", "frame.attempt_failed"]), max_size=2)):
            steps += [("frame.dispatched", frame), ("frame.checkpointed", frame), (setback, frame)]
        steps += [("frame.dispatched", frame), (draw(st.sampled_from(["frame.committed", "frame.failed"])), frame)]
    steps += [("stage.closed", stage), ("loop.done", loop), ("loop.fanout.started", fanout)]
    for kind in draw(st.lists(st.sampled_from(["loop.shard.done", "loop.shard.failed"]), max_size=3)):
        steps.append((kind, {**fanout, "shard_id": "s"}))
    steps += [("loop.fanin.completed", fanout), (INVOICE_POSTED, {"aggregate_id": "i1"})]
    steps.append((draw(st.sampled_from(["playbook.completed", "workflow.failed", "execution.cancelled"])), {}))
    steps += [("frame.committed", {**loop, **stage, "frame_id": 1}), ("step.exited", {})]
    kept = steps[: draw(st.integers(1, len(steps)))]
    return [{**base, **own, "kind": kind, **draw(_fields_of(kind, base))} for kind, own in kept]


@st.composite
def histories(draw: st.DrawFn, max_runs: int = 3, max_strays: int = 12) -> list[Event]:
    """Draw a history: sensible executions, interleaved, with stray events strewn in."""
    tracks = draw(st.lists(_run(), max_size=max_runs))
    tracks += [[move] for move in draw(st.lists(_stray(), max_size=max_strays))]
    turns = draw(st.permutations([number for number, track in enumerate(tracks) for _ in track]))
    chronicle = Chronicle()
    for number in turns:
        chronicle.add(**tracks[number].pop(0))
    return chronicle.events
