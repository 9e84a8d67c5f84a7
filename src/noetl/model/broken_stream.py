"""Streams whose events cannot be folded on: the first event that cannot be read, and why."""

from __future__ import annotations

from datetime import datetime

import msgspec

from noetl.model.event import Event
from noetl.model.stream import Scope, Stream


class BrokenStream(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream stands still. For streams of an execution it is the execution's own: its rows hear all of them."""

    tenant_id: str
    organization_id: str
    stream_id: str
    shard: int
    position: int
    """The first event that is not folded; none of the stream's later events is."""
    event_id: int
    sha256: str
    """The digest of the fields that cannot be read."""
    code: str
    message: str
    since: datetime | None = None

    @property
    def stream(self) -> Stream:
        """The stream that stands still."""
        return Stream(self.tenant_id, self.organization_id, self.stream_id)

    @property
    def scope(self) -> Scope:
        """The organization that owns the stream."""
        return Scope(self.tenant_id, self.organization_id)

    def sentence(self) -> str:
        """Say it to a person."""
        return (
            f"stream {self.stream_id} of {self.tenant_id}/{self.organization_id} stands still at event {self.event_id}, "
            f"position {self.position} of shard {self.shard}: {self.code}: {self.message}"
        )


def broken_at(event: Event, code: str, message: str) -> BrokenStream:
    """Say that a stream stands still at an event whose fields cannot be read, or that cannot be folded."""
    return BrokenStream(
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        stream_id=Stream(event.tenant_id, event.organization_id, event.stream_id).root.stream_id,
        shard=event.shard,
        position=event.position,
        event_id=event.event_id,
        sha256="" if event.fields_ref is None else event.fields_ref.sha256,
        code=code,
        message=message,
    )
