"""Result references: events go in, the place of each payload they refer to comes out. Nothing is read or stored here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.project.port import ResultRef

Locate = Callable[[Scope, PayloadRef], tuple[str, str]]
"""Tells the tier a payload lies in and its physical address."""


def result_refs(events: Iterable[Event], locate: Locate | None) -> Iterator[ResultRef]:
    """Give a reference for every payload and every set of externalized fields; none where nobody can locate them."""
    if locate is None:
        return
    for event in events:
        if event.payload_ref is not None:
            yield _reference(event, "payload", event.payload_ref, locate)
        if event.fields_ref is not None:
            yield _reference(event, "fields", event.fields_ref, locate)


def _reference(event: Event, part: Literal["payload", "fields"], ref: PayloadRef, locate: Locate) -> ResultRef:
    scope = Scope(event.tenant_id, event.organization_id)
    store_tier, physical_uri = locate(scope, ref)
    return ResultRef(
        scope=scope,
        ref_id=event.event_id,
        part=part,
        ref=ref.uri,
        execution_id=event.execution_id,
        parent_ref_id=event.causation_id,
        source_step=event.node_name,
        store_tier=store_tier,
        physical_uri=physical_uri,
        content_type=ref.media_type,
        bytes_size=ref.bytes,
        sha256=ref.sha256,
        compression=ref.encoding,
        created_at=event.ingest_time,
        shard=event.shard,
    )
