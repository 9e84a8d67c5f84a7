"""The promise of a node's shared memory, and how a hint is held against what is known before it is followed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from noetl.model.payload_ref import HintedRef, IpcHint, PayloadRef
from noetl.payloads.hints import Filed
from noetl.payloads.origin import Origin


class NodeMemory(Protocol):
    """Tables that all processes of a node may read, each for a while."""

    def put(self, key: str, data: bytes | memoryview, schema_digest: str, origin: Origin) -> IpcHint | None:
        """Offer a table to the node; None if it was not taken."""
        ...

    def attach(self, key: str, ref: PayloadRef) -> memoryview | None:
        """Return a table's bytes where they lie, whole as long as they are held; None for any doubt."""
        ...

    def hint(self, key: str) -> IpcHint | None:
        """Return where a table lies."""
        ...

    def drop(self, key: str) -> None:
        """Make a table unknown."""
        ...

    def in_use(self) -> int:
        """Return the bytes in use on the whole node."""
        ...

    def sweep(self) -> int:
        """Remove what dead processes left, and return how many regions that was."""
        ...

    def close(self) -> None:
        """Remove every region of this process."""
        ...


class Doubt(Exception):
    """Why a region is not used."""


def check_hint(filed: Filed, ref: PayloadRef, node_id: str) -> None:
    """Hold a hint against what the reference and this node say; Doubt if anything differs."""
    hint = filed.hint
    if hint.node_id != node_id:
        raise Doubt("node")
    if hint.valid_until <= datetime.now(UTC):
        raise Doubt("stale")
    if hint.schema_digest != ref.schema_digest:
        raise Doubt("schema")
    if filed.length != ref.bytes:
        raise Doubt("length")
    if isinstance(ref, HintedRef) and ref.ipc != hint:
        raise Doubt("forged")
