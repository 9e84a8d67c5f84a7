"""A reference to immutable bytes: what an event carries instead of large data. It never points to a cache alone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

import msgspec

Encoding = Literal["identity", "zstd", "aes256gcm", "zstd+aes256gcm"]

FRAMES = "application/vnd.noetl.frames+json"
"""The media type of a loop's manifest: which payloads hold what its rows came to, frame by frame."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class PayloadRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the bytes are, how to read them and how to prove them.

    `sha256` and `bytes` speak of the plain bytes; `stored_sha256` of the object as stored (compressed, encrypted), so
    that a stored object can be checked without the tenant's key.
    """

    uri: str
    sha256: str
    media_type: str
    bytes: int
    stored_sha256: str
    encoding: Encoding = "identity"
    rows: int | None = None
    schema_digest: str | None = None

    def problems(self, tenant_id: str, organization_id: str) -> list[str]:
        """Say what is wrong with this reference for that tenant and organization; empty when it is sound."""
        found = []
        if not _DIGEST.fullmatch(self.sha256):
            found.append("payload_ref.sha256 is not a SHA-256 in lower-case hex")
        if not _DIGEST.fullmatch(self.stored_sha256):
            found.append("payload_ref.stored_sha256 is not a SHA-256 in lower-case hex")
        if self.uri != payload_uri(tenant_id, organization_id, self.sha256):
            found.append("payload_ref.uri is not the durable object of that digest in this tenant and organization")
        if self.bytes < 0 or (self.rows is not None and self.rows < 0):
            found.append("payload_ref.bytes and payload_ref.rows cannot be negative")
        return found

    def event_problems(self, tenant_id: str, organization_id: str) -> list[str]:
        """Say what is wrong with this reference as a part of an event, which outlives every hint."""
        found = self.problems(tenant_id, organization_id)
        if type(self) is not PayloadRef:
            found.append("payload_ref carries a hint of one node, and events carry none")
        return found


class IpcHint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a table lies in the shared memory of one node, and until when at least; it may be gone at any time."""

    node_id: str
    shm_name: str
    schema_digest: str
    valid_until: datetime


class HintedRef(PayloadRef, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A reference on its way between processes of one node, with a hint. No event has it, and nothing depends on it."""

    ipc: IpcHint


class ErasedRef(PayloadRef, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A reference whose bytes were erased on purpose, as an event says. Only readers make it; no event is recorded with it."""


def payload_uri(tenant_id: str, organization_id: str, sha256: str) -> str:
    """Return the locator of a payload."""
    return f"noetl://tenant/{tenant_id}/org/{organization_id}/payloads/sha256/{sha256}"
