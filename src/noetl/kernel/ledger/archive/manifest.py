"""What an archive consists of: a manifest that lists objects, and objects that hold events as lines of canonical JSON.

Objects are ordered by shard and position. Reading proves every byte: the payload store checks digests, this module
checks that a manifest and its objects say the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import Protocol

import msgspec

from noetl.errors import Corrupt
from noetl.model.canonical import canonical_json, digest_of
from noetl.model.event import Event, from_json
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

EVENTS_MEDIA_TYPE = "application/vnd.noetl.events+jsonl"
MANIFEST_MEDIA_TYPE = "application/vnd.noetl.archive+json"

_decode_line = msgspec.json.Decoder().decode


class Payloads(Protocol):
    """The part of the payload store that archives need."""

    async def store(
        self, scope: Scope, data: bytes | AsyncIterable[bytes], media_type: str, *, rows: int | None = None
    ) -> PayloadRef:
        """Keep the bytes and return their reference."""
        ...

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the bytes, proven."""
        ...

    def stream(self, scope: Scope, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces, proven."""
        ...


class ArchivedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object: some consecutive events of one organization in one shard."""

    shard: int
    first_position: int
    last_position: int
    count: int
    first_execution_id: str
    last_execution_id: str
    ref: PayloadRef


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that one organization had in one partition."""

    partition: str
    events: int
    executions: int
    first_execution_id: str
    last_execution_id: str
    bounds: dict[str, tuple[int, int]]
    objects: list[ArchivedObject]

    def encoded(self) -> bytes:
        """Return the manifest as canonical JSON with its checksum."""
        fields = msgspec.to_builtins(self)
        return canonical_json({**fields, "checksum": digest_of(fields)})


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest and compare its checksum."""
    fields = msgspec.json.decode(data)
    checksum = fields.pop("checksum", None)
    if checksum != digest_of(fields):
        raise Corrupt(f"the manifest of {fields.get('partition')} does not match its checksum")
    manifest = msgspec.convert(fields, Manifest)
    if sum(found.count for found in manifest.objects) != manifest.events:
        raise Corrupt(f"the objects of {manifest.partition} do not hold as many events as its manifest says")
    return manifest


async def archived_events(
    payloads: Payloads, scope: Scope, found: ArchivedObject, holding: bytes = b""
) -> AsyncGenerator[Event, None]:
    """Yield the events of one object by position; only lines that hold these bytes are decoded."""
    async with aclosing(_lines(payloads, scope, found)) as lines:
        async for line in lines:
            if holding in line:
                yield from_json(_decode_line(line))


async def prove(payloads: Payloads, scope: Scope, manifest: Manifest) -> None:
    """Read every object of an archive once, to know that all of it can be read."""
    for found in manifest.objects:
        async for _ in _lines(payloads, scope, found):
            pass


async def _lines(payloads: Payloads, scope: Scope, found: ArchivedObject) -> AsyncGenerator[bytes, None]:
    count, rest = 0, b""
    pieces = payloads.stream(scope, found.ref)
    try:
        async for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                count += 1
                yield line
    finally:
        # A reader that stops early must give the store's spool file back at once, not when it is collected.
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    if rest or count != found.count:
        raise Corrupt(f"the archived object {found.ref.sha256} holds {count} events, not {found.count}")
