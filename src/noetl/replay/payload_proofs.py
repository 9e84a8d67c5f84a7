"""Proves the stored bytes of payloads: events go in, what is wrong with the bytes they refer to comes out."""

from __future__ import annotations

from typing import Final

from noetl.errors import NoetlError
from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.port import PayloadStore
from noetl.replay.compare import SHOWN
from noetl.replay.report import Difference

_SEEN: Final = 1_000_000
"""Payload digests remembered so as not to check one twice."""


class PayloadProofs:
    """Proves the stored bytes of payloads, each once, without keys."""

    def __init__(self, store: PayloadStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._seen: set[bytes] = set()
        self.checked = 0
        self.differences: list[Difference] = []

    async def check(self, event: Event) -> None:
        """Prove what an event refers to."""
        for ref in (event.payload_ref, event.fields_ref):
            if ref is not None and bytes.fromhex(ref.sha256) not in self._seen:
                if len(self._seen) < _SEEN:
                    self._seen.add(bytes.fromhex(ref.sha256))
                await self._prove(event, ref)

    async def _prove(self, event: Event, ref: PayloadRef) -> None:
        self.checked += 1
        try:
            await self._store.check(self._scope, ref)
        except NoetlError as problem:
            if len(self.differences) < SHOWN:
                self.differences.append(
                    Difference(
                        where="payload",
                        id=ref.sha256,
                        field=f"bytes, which event {event.event_id} at position {event.position} refers to",
                        expected=ref.stored_sha256,
                        found=f"{problem.code}: {problem.message}",
                    )
                )
