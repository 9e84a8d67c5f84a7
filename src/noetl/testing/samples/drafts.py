"""Builders of valid drafts: a test names what matters to it, everything else is filled in soundly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from noetl.model.catalogue import event_type
from noetl.model.event import Draft
from noetl.model.ids import snowflake_time
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import (
    Scope,
    Stream,
    execution_stream,
    frame_stream,
    loop_stream,
    stage_stream,
)

PRODUCER = "noetl://tenant/tests/org/tests/test/noetl"
"""Who says what tests have said."""


class Drafts:
    """Makes drafts of one organization; each gets a fresh id and the time that id was minted at."""

    def __init__(self, scope: Scope, ids: Callable[[], int]) -> None:
        self.scope = scope
        self.mint = ids

    def draft(self, stream: Stream, kind: str, execution_id: int, **fields: Any) -> Draft:
        """Make a draft of any type; a type that is retried from outside gets an idempotency key of its own."""
        known = event_type(kind)
        assert known is not None, kind
        event_id = self.mint()
        filled: dict[str, Any] = {
            "event_id": event_id,
            "tenant_id": stream.tenant_id,
            "organization_id": stream.organization_id,
            "execution_id": execution_id,
            "stream_id": stream.stream_id,
            "aggregate_type": known.aggregate,
            "aggregate_id": stream.stream_id.rsplit("/", 1)[-1],
            "event_type": kind,
            "schema_name": known.schema_name,
            "schema_version": known.version,
            "event_time": snowflake_time(event_id),
            "producer": PRODUCER,
        }
        if known.retried:
            filled["idempotency_key"] = f"{kind}/{event_id}"
        return Draft(**{**filled, **fields})

    def again(self, draft: Draft, **fields: Any) -> Draft:
        """Make the draft a producer sends when it tries again: the same content under a new id and time."""
        event_id = self.mint()
        return msgspec.structs.replace(draft, event_id=event_id, event_time=snowflake_time(event_id), **fields)

    def execution(self, execution_id: int, kind: str = "playbook.initialized", **fields: Any) -> Draft:
        """Make an event of an execution's own stream."""
        return self.draft(execution_stream(self.scope, execution_id), kind, execution_id, **fields)

    def command(self, execution_id: int, command_id: str, kind: str = "command.issued", **fields: Any) -> Draft:
        """Make an event of a command."""
        meta = {"command.issued": {"tool_kind": "python"}}.get(kind, {"attempt": 1})
        stream = self.scope.stream(f"execution/{execution_id}/command/{command_id}")
        return self.draft(
            stream, kind, execution_id, **{"node_name": "work", "command_id": command_id, "meta": meta, **fields}
        )

    def loop(self, execution_id: int, loop_id: int, kind: str, **fields: Any) -> Draft:
        """Make an event of a loop or a fan-out."""
        stream = loop_stream(self.scope, execution_id, loop_id)
        return self.draft(
            stream,
            kind,
            execution_id,
            **{"node_name": "each", "loop_id": loop_id, **_LOOP_FIELDS.get(kind, {}), **fields},
        )

    def loop_item(self, execution_id: int, loop_id: int, index: int, **fields: Any) -> Draft:
        """Make the event of one row of a loop."""
        given = {"current_index": index, "current_item": {"row": index}, **fields}
        return self.loop(execution_id, loop_id, "loop.item", **given)

    def loop_items(self, execution_id: int, loop_id: int, count: int) -> list[Draft]:
        """Make the events of the first rows of a loop."""
        return [self.loop_item(execution_id, loop_id, index) for index in range(count)]

    def stage(self, execution_id: int, stage_id: int, kind: str = "stage.opened", **fields: Any) -> Draft:
        """Make an event of a stage."""
        given = {"node_name": "each", "stage_id": stage_id, "status": "ok", **fields}
        if kind == "stage.opened":
            given.setdefault("meta", {"kind": "loop", "dsl_ref": "steps/each"})
        return self.draft(stage_stream(self.scope, execution_id, stage_id), kind, execution_id, **given)

    def frame(
        self, execution_id: int, stage_id: int, frame_id: int, kind: str = "frame.dispatched", **fields: Any
    ) -> Draft:
        """Make an event of a frame."""
        meta: dict[str, Any] = {"attempt": 1}
        if kind == "frame.dispatched":
            meta |= {"worker": "w1", "row_count": 10}
        if kind == "frame.committed":
            meta |= {"row_count": 10}
        given = {"stage_id": stage_id, "frame_id": frame_id, "meta": meta, **fields}
        return self.draft(frame_stream(self.scope, execution_id, frame_id), kind, execution_id, **given)

    def business(self, stream_id: str, execution_id: int, kind: str = "business.noted", **fields: Any) -> Draft:
        """Make an event of the user's own, on a stream that outlives executions."""
        return self.draft(self.scope.stream(stream_id), kind, execution_id, **fields)

    def payload(self, sha256: str = "ab" * 32, **fields: Any) -> PayloadRef:
        """Make a reference to a payload of this organization."""
        uri = payload_uri(self.scope.tenant_id, self.scope.organization_id, sha256)
        given = {"media_type": "application/json", "bytes": 2, "stored_sha256": sha256, **fields}
        return PayloadRef(uri=uri, sha256=sha256, **given)


_LOOP_FIELDS: dict[str, dict[str, Any]] = {
    "loop.started": {"meta": {"collection_size": 3, "mode": "sequential"}},
    "loop.done": {"result": {"status": "ok", "context": {"total": 3, "completed": 3, "failed": 0}}},
    "loop.fanout.started": {"meta": {"total_shards": 3}},
    "loop.shard.enqueued": {"shard_id": "s0", "current_index": 0},
    "loop.shard.done": {"shard_id": "s0"},
    "loop.shard.failed": {"shard_id": "s0"},
    "loop.fanin.completed": {"result": {"status": "complete", "context": {"done": 3, "failed": 0, "total": 3}}},
}
