"""What a ledger promises. The docstrings are the specification; `noetl.testing` checks every adapter against them.

Code that only looks takes a `LedgerReader`; code that records or waits takes a `Ledger`. How an adapter is opened,
closed, counted and switched to another write path is known to `noetl.runtime` alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from noetl.kernel.ledger.chain.links import Link
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import Appended, Draft, Event
from noetl.model.mark import Mark, ReadToken, VersionToken
from noetl.model.stream import Scope, Stream


class LedgerReader(Protocol):
    """All accepted events, never changed, ordered by position within a shard."""

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


class LinkReader(Protocol):
    """The chain that makes changes of events evident."""

    def links(self, shard: int, from_position: int = 1, to_position: int | None = None) -> AsyncIterator[list[Link]]:
        """Give the links of a shard that hold positions within the bounds, in order and in pages.

        Every call that wrote events to a shard left one link there, in the same transaction: its first position, how
        many events it wrote, when they were taken in, their stream versions and their leaves, under the SHA-256 of
        these and the link before. Links outlive the events. They span tenants, so reading them takes a reader that
        serves all tenants.
        """
        ...


class Ledger(LedgerReader, Protocol):
    """A ledger that events are appended to, once each."""

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

        An append changes no row of open work, whatever its events say; only `transact` does.
        """
        ...

    async def transact(self, transition: Transition) -> tuple[Appended, ...]:
        """Record a change of work under the leases it relies on, in all its streams and rows or in none.

        The appends belong to one organization. Each is recorded as `append` says, and the answers stand in the order
        of the appends. The rows that the events open, change and end (`noetl.model.catalogue` declares which) follow
        in the same instant: nobody ever sees an event without its rows or a row without its event.

        *Fences* are judged against the rows as they stand before the change. One that does not hold raises `LeaseLost`:

        - `held`: the row exists, its attempt and token are the fence's, and its lease lasts.
        - `expired`: the same, but the lease has run out.
        - `free`: the row exists, its attempt is the fence's, and nobody holds it. A task must also be available by now.
        - `open`, `ended`: of a task, whatever its attempt and token.
        - `room`: fewer tasks run of the job's generation than the fence's `attempt`. Several such fences on one
          generation count each other: each stands for one more task that is about to run.

        Leases last by the ledger's own clock, never by the caller's.

        *Transitions that are sent at once* are decided one after another, in an order the ledger chooses. A
        transition that changes or ends what a later one is fenced on takes that lease from it. One that leaves the
        lease as it is (a checkpoint, a fact beside it) takes it from nobody, and neither does one that is refused.
        A refusal is that transition's alone: the others stand.

        *Refusals* write nothing at all, use up no idempotency key and leave no gap in versions or positions. They are
        those of `append`, and `LeaseLost`; a reused key and a lost lease are told before a wrong version. What other
        parts of the change would have met is not told.

        *Repetition*: the same transition, recognised by its event ids, gets the first answer again and changes
        nothing, even where its fences and versions no longer hold. A key seen before with other event ids is
        `KeyReused`: whoever reports the end of work a second time is refused.

        `Unavailable` means what it means for `append`.
        """
        ...

    def subscribe(
        self, cursor: Mark, *, scope: Scope | None = None, shards: Sequence[int] | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give events after the cursor in batches, each from one shard and in order, and wait for more for ever.

        Delivery is from the cursor on, without gaps; a caller that keeps its own cursor with its own writes sees each
        event exactly once. Close the iterator to stop.
        """
        ...

    async def covered(self, token: ReadToken | VersionToken, scope: Scope, seconds: float) -> None:
        """Return once a reader of the ledger finds what the token stands for; after the time, raise `Unavailable`.

        An append may be accepted before its events can be read, when they reach the ledger through a stream.
        """
        ...
