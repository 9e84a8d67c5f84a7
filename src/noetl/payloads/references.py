"""What garbage collection must know about events. The ledger answers; the payload store never reads events itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from noetl.model.stream import Scope


class References(Protocol):
    """Which payloads the retained history refers to, and which of them are *condemned*: about to be deleted.

    A condemned payload goes through `condemn`, deletion and `removed`. From `condemn` until `spare`, the ledger refuses
    new events that refer to it with PayloadCollected. Both marks are durable, so a collector that dies in between is
    finished by the next one.
    """

    async def count(self, scope: Scope, sha256s: Sequence[str]) -> dict[str, int]:
        """Return, for each digest, how many retained events refer to it, archived events and manifests included."""
        ...

    async def explain(self, scope: Scope, sha256: str) -> list[str]:
        """Name what refers to a digest: event ids and archive manifests."""
        ...

    def exclusively(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Hold the right to collect in a scope; Conflict if another collector holds it."""
        ...

    async def condemn(self, scope: Scope, sha256: str) -> bool:
        """Condemn a payload; False, and nothing done, if an event refers to it by now.

        The look at the events and the mark must be one step as seen by appends: an append either comes before and is
        counted, or comes after and is refused.
        """
        ...

    async def removed(self, scope: Scope, sha256: str) -> None:
        """Record that the object of a condemned payload is deleted; only then may it be stored and admitted again."""
        ...

    async def spare(self, scope: Scope, sha256: str) -> None:
        """Lift the mark, so that events may refer to the payload again; idempotent."""
        ...

    async def condemned(self, scope: Scope) -> list[str]:
        """Return the digests that are condemned and not yet recorded as removed."""
        ...
