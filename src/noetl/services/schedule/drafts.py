"""Events of schedules, made many at a time: what happened goes in, appends to the streams of schedules come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from noetl.kernel.ledger.transition import Append
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Draft
from noetl.model.stream import Scope
from noetl.services.schedule.spec import schedule_stream


class Said(msgspec.Struct, frozen=True):
    """One event to record."""

    event_type: str
    meta: dict[str, Any]
    context: dict[str, Any] = {}
    result: dict[str, Any] = {}
    error: str | None = None


class Told(NamedTuple):
    """What is to be recorded of one schedule, by whoever knows it at this version."""

    scope: Scope
    schedule_id: str
    version: int | None
    said: Sequence[Said]
    execution_id: int | None = None
    """None: what is said here begins an execution of its own."""


class ScheduleDrafts:
    """Makes the drafts of one process."""

    def __init__(self, mint_many: Callable[[int], list[int]], producer: str) -> None:
        self._mint_many = mint_many
        self._producer = producer

    def appends(self, told: Sequence[Told]) -> list[Append]:
        """Return one append for each schedule."""
        ids = iter(self._mint_many(sum(len(one.said) + 1 for one in told)))
        now = datetime.now(UTC)
        return [self._append(one, now, next(ids), [next(ids) for _ in one.said]) for one in told]

    def _append(self, told: Told, now: datetime, fresh_id: int, event_ids: list[int]) -> Append:
        stream = schedule_stream(told.scope, told.schedule_id)
        execution_id = told.execution_id or fresh_id
        drafts = []
        for event_id, said in zip(event_ids, told.said, strict=True):
            kind = BY_NAME[said.event_type]
            drafts.append(
                Draft(
                    event_id,
                    stream.tenant_id,
                    stream.organization_id,
                    execution_id,
                    stream.stream_id,
                    kind.aggregate,
                    stream.stream_id,
                    said.event_type,
                    kind.schema_name,
                    kind.version,
                    now,
                    self._producer,
                    meta=said.meta,
                    context=said.context,
                    result=said.result,
                    error=said.error,
                )
            )
        return Append(stream, drafts, told.version)
