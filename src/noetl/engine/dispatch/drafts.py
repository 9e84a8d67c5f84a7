"""Facts become drafts: ids, times, streams and keys are given here, once for all of a decision."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from noetl.engine.plan.fact import Fact
from noetl.kernel.ledger.transition import Append
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Draft
from noetl.model.stream import Scope, Stream, execution_stream, loop_stream, stage_stream


class Drafting:
    """Makes the drafts of one process."""

    def __init__(self, mint_many: Callable[[int], list[int]], producer: str) -> None:
        self._mint_many = mint_many
        self.producer = producer

    def appends(
        self,
        scope: Scope,
        execution_id: int,
        facts: Sequence[Fact],
        *,
        expected_version: int | None,
        causation_id: int | None = None,
    ) -> tuple[Append, ...]:
        """Lay facts out as appends, those of the execution itself first; later facts are caused by the first."""
        now = datetime.now(UTC)
        ids = self._mint_many(len(facts))
        by_stream: dict[str, tuple[Stream, list[Draft]]] = {}
        own = execution_stream(scope, execution_id)
        by_stream[own.stream_id] = (own, [])
        for number, (fact, event_id) in enumerate(zip(facts, ids, strict=True)):
            stream = _stream(scope, execution_id, fact, own)
            cause = causation_id if number == 0 else ids[0]
            draft = self._draft(scope, stream, execution_id, fact, event_id, now, cause)
            by_stream.setdefault(stream.stream_id, (stream, []))[1].append(draft)
        return tuple(
            Append(stream, drafts, expected_version if stream is own else None)
            for stream, drafts in by_stream.values()
            if drafts
        )

    def _draft(
        self,
        scope: Scope,
        stream: Stream,
        execution_id: int,
        fact: Fact,
        event_id: int,
        now: datetime,
        causation_id: int | None,
    ) -> Draft:
        kind = BY_NAME[fact.event_type]
        return Draft(
            event_id,
            scope.tenant_id,
            scope.organization_id,
            execution_id,
            stream.stream_id,
            kind.aggregate,
            _aggregate_id(execution_id, fact, kind.aggregate),
            fact.event_type,
            kind.schema_name,
            kind.version,
            now,
            self.producer,
            causation_id=causation_id,
            correlation_id=str(execution_id),
            # A request's key is the caller's own and says which execution it stands for.
            idempotency_key=None
            if fact.key is None
            else fact.key
            if fact.key.startswith("request/")
            else f"{execution_id}/{fact.key}",
            parent_execution_id=fact.parent_execution_id,
            catalog_id=fact.catalog_id,
            node_name=fact.node_name,
            status=fact.status,
            stage_id=fact.stage_id,
            loop_id=fact.loop_id,
            command_id=fact.command_id,
            payload_ref=fact.payload_ref,
            meta=fact.meta,
            context=fact.context,
            result=fact.result,
            error=fact.error,
        )

    def one(
        self, scope: Scope, stream: Stream, execution_id: int, event_type: str, aggregate_id: str, **fields: object
    ) -> Draft:
        """Make a single draft."""
        kind = BY_NAME[event_type]
        return Draft(
            self._mint_many(1)[0],
            scope.tenant_id,
            scope.organization_id,
            execution_id,
            stream.stream_id,
            kind.aggregate,
            aggregate_id,
            event_type,
            kind.schema_name,
            kind.version,
            datetime.now(UTC),
            self.producer,
            correlation_id=str(execution_id),
            **fields,  # type: ignore[arg-type]
        )

    def claim(
        self, scope: Scope, execution_id: int, command_id: str, issued_event_id: int, lease: dict[str, Any]
    ) -> Append:
        """Say that a worker took a lease on a command, in the stream of the command's leases."""
        stream = command_stream(scope, execution_id, issued_event_id)
        draft = self.one(
            scope, stream, execution_id, "command.claimed", f"command/{command_id}", command_id=command_id,
            causation_id=issued_event_id, meta=lease,
        )  # fmt: skip
        return Append(stream, [draft])


def new_lease(worker: str, attempt: int, lease_seconds: float) -> dict[str, Any]:
    """Return what a claim says of the lease a worker takes."""
    return {
        "attempt": attempt,
        "worker": worker,
        "lease_token": str(uuid.uuid4()),
        "lease_seconds": lease_seconds,
    }


def _stream(scope: Scope, execution_id: int, fact: Fact, own: Stream) -> Stream:
    if fact.at == "stage":
        assert fact.stage_id is not None
        return stage_stream(scope, execution_id, fact.stage_id)
    if fact.at == "loop":
        assert fact.loop_id is not None
        return loop_stream(scope, execution_id, fact.loop_id)
    return own


def _aggregate_id(execution_id: int, fact: Fact, aggregate: str) -> str:
    if aggregate == "command":
        return f"command/{fact.command_id}"
    if aggregate == "artifact":
        assert fact.payload_ref is not None
        return f"artifact/{fact.payload_ref.sha256}"
    if aggregate == "stage":
        return f"stage/{fact.stage_id}"
    if aggregate == "loop":
        return f"loop/{fact.loop_id}"
    return f"execution/{execution_id}"


def command_stream(scope: Scope, execution_id: int, issued_event_id: int) -> Stream:
    """Return the stream of a command's leases, named by the event that issued it: step names may hold any letters."""
    return scope.stream(f"execution/{execution_id}/command/{issued_event_id}")
