"""What a ledger promises. The docstrings are the specification; `noetl.testing.ledger_contract` checks every adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from noetl.model.event import Appended, Draft, Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope, Stream


class Ledger(Protocol):
    """All accepted events, appended once, never changed, ordered by position within a shard."""

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record all drafts, or none, at the end of a stream.

        The events get the next dense versions of the stream and the next dense positions of its shard, in the order
        given; positions become visible in that order, so a reader at position p never finds a smaller one later.

        - `expected_version` other than the stream's version: `VersionConflict`, nothing written. 0 means "new".
        - An idempotency key seen before: the first answer again with `repeated`, nothing written, whatever the
          expected version says. The same key with other content, or with only some of the append's keys: `KeyReused`.
        - A fact that may stand once per execution and stands already: `AlreadyRecorded`.
        - A payload that garbage collection took: `PayloadCollected`; store it again and append again.
        - A draft that breaks the envelope's invariants: `EventInvalid`, with every problem.

        When this returns, the events survive a crash of any process. When it raises `Unavailable` the outcome is
        unknown; the same append may be sent again and is recognised by its event ids.
        """
        ...

    def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Event]:
        """Give the events of a stream from a version on, in order, up to what is committed now."""
        ...

    def read_execution(
        self, scope: Scope, execution_id: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of an execution, of all streams under `execution/<id>`, by position, both bounds included."""
        ...

    def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard by position, both bounds included, up to what is committed now.

        With a scope only its events are given. Without one the events of all tenants are, which takes a reader that
        serves all tenants, such as a projector.
        """
        ...

    async def head(self) -> Mark:
        """Return the last position given out in each shard: everything up to it is committed and readable."""
        ...

    def subscribe(
        self, cursor: Mark, *, scope: Scope | None = None, shards: Sequence[int] | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give events after the cursor in batches, each from one shard and in order, and wait for more for ever.

        Delivery is from the cursor on, without gaps; a caller that keeps its own cursor with its own writes sees each
        event exactly once. Close the iterator to stop.
        """
        ...
