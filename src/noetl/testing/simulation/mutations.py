"""Bugs put back in, by name: each says where it is, and the simulation must find each.

A mutation changes something at a seam: a fence of a transition on its way to the ledger, an answer of a store, a rule. So it
stays what it is when the code around it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.stores import EngineStores
from noetl.engine.plan import decide
from noetl.kernel.ledger.transition import Fence, Transition
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.model.lease import Proof
from noetl.model.stream import Scope
from noetl.services.credentials.memory_tokens import MemoryTokens
from noetl.testing.simulation.aiming import SHOWN_IN
from noetl.testing.simulation.checks.transitions import types_in
from noetl.testing.simulation.checks.watched_ledger import WatchedLedger
from noetl.testing.simulation.world.chance import replaced
from noetl.testing.simulation.world.outboxes import MemoryOutbox
from noetl.testing.simulation.world.playbooks import Shape

Forgotten = tuple[str, str, str]
"""The type of an event, and the table and mode of the fence that it was recorded without."""


@dataclass(frozen=True)
class Mutation:
    """One bug."""

    name: str
    says: str
    found_by: frozenset[str] = frozenset()
    """The invariants that it breaks; none are named where it may be any."""
    only: Shape | None = None
    """The shape of executions that it is looked for in; None where it shows anywhere."""
    late: str | None = None
    """The type of event whose writes are held up where it is looked for."""
    is_rare: bool = False
    """Whether it takes so many seeds to find that `make test-slow` looks for it."""
    forgets: frozenset[Forgotten] = frozenset()
    change: Callable[[Any], Any] = field(default=lambda part: part, repr=False)
    """Gives a ledger, or whatever else a process reaches, with the bug."""
    put_in: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, repr=False)
    """Puts it into a module for a block, where there is no seam."""


NONE: Final = Mutation("none", "The product as it is.")


class Unfenced:
    """A ledger whose writers forget fences, or the version they decided on."""

    def __init__(self, ledger: Any, forget: Callable[[Transition], Transition]) -> None:
        self._ledger = ledger
        self._forget = forget

    async def transact(self, transition: Transition) -> Any:
        """Record a change without what was forgotten."""
        return await self._ledger.transact(self._forget(transition))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def forgetting(forget: Callable[[Transition], Transition]) -> Callable[[Any], Any]:
    """Let a ledger's writers forget something."""
    return lambda part: Unfenced(part, forget) if isinstance(part, WatchedLedger) else part


def _without(kind: str, table: str, modes: Sequence[str]) -> Callable[[Transition], Transition]:
    def stays(fence: Fence) -> bool:
        return fence.table != table or fence.mode not in modes

    def forget(transition: Transition) -> Transition:
        if kind not in types_in(transition):
            return transition
        return msgspec.structs.replace(transition, fences=tuple(filter(stays, transition.fences)))

    return forget


def _fence(kind: str, table: str, *modes: str, only: Shape | None = None, rare: bool = False) -> Mutation:
    return Mutation(
        f"fence-of-{kind}-on-{'-or-'.join(modes)}-{table}",
        f"{kind} is recorded without asking whether the {table} is {' or '.join(modes)}.",
        frozenset(),
        only or SHOWN_IN[kind],
        None if rare else kind,
        rare,
        frozenset((kind, table, mode) for mode in modes),
        forgetting(_without(kind, table, modes)),
    )


def _any_version(transition: Transition, of: str = "") -> Transition:
    if not any(kind.startswith(of) for kind in types_in(transition)):
        return transition
    appends = tuple(append._replace(expected_version=None) for append in transition.appends)
    return msgspec.structs.replace(transition, appends=appends)


class OverWholeLife:
    """Facts in which every loss of a slot counts, whatever was committed since."""

    def __init__(self, facts: Any) -> None:
        self._facts = facts

    async def losses(self, scope: Any, execution_id: int, command_id: str, issued_event_id: int, loop_id: Any) -> int:
        """Count all of them: a loop that nobody knows has committed nothing."""
        found: int = await self._facts.losses(scope, execution_id, command_id, issued_event_id, -1)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)


def _whole_life(part: Any) -> Any:
    if not isinstance(part, EngineStores):
        return part
    return EngineStores(part.entries, part.work, part.running, OverWholeLife(part.facts))


class OnlyLive:
    """Tokens of which only the live ones count: with the last one the server opens."""

    def __init__(self, tokens: MemoryTokens) -> None:
        self._tokens = tokens

    async def any_ever(self, scope: Scope) -> bool:
        """Tell whether anybody holds a token that is good now."""
        return await self._tokens.any_live(scope)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokens, name)


class SavesAnyway:
    """A projection store that does not ask where the checkpoint stands."""

    def __init__(self, store: MemoryProjectionStore) -> None:
        self._store = store

    async def save_projections(self, shard: int, after: int, upto: int, *rows: Any, **more: Any) -> bool:
        """Write rows over whatever is there."""
        return await self._store.save_projections(shard, self._store._positions[shard], upto, *rows, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class MarksAnyway(MemoryOutbox):
    """An outbox whose rows are marked by whoever delivered last, holder or not."""

    def __init__(self, rows: MemoryOutbox) -> None:
        self.__dict__ = rows.__dict__

    def mark(self, proof: Proof, wait: float | None, status: str) -> bool:
        """Write a mark over whatever is there."""
        self.put(self.rows[proof.key[0]], wait, status)
        return True


@contextmanager
def _no_limits() -> Iterator[None]:
    with replaced(decide, "reached", lambda limits, state: None):
        yield


FENCES: Final = (
    _fence("command.claimed", "command", "free"),
    _fence("command.completed", "command", "held"),
    _fence("command.failed", "command", "held"),
    _fence("command.failed", "command", "expired", only="long"),
    _fence("command.attempt_failed", "command", "held", rare=True),
    _fence("command.abandoned", "command", "expired"),
    _fence("command.abandoned", "frame", "held", "expired", rare=True),
    _fence("command.returned", "command", "held"),
    _fence("command.returned", "frame", "held", "expired"),
    _fence("command.stalled", "command", "held"),
    _fence("command.resumed", "command", "held"),
    _fence("frame.dispatched", "command", "held"),
    _fence("frame.dispatched", "frame", "free"),
    _fence("frame.committed", "frame", "held"),
    _fence("frame.checkpointed", "frame", "held"),
    _fence("frame.attempt_failed", "frame", "held"),
    _fence("frame.failed", "frame", "held"),
    _fence("frame.failed", "frame", "expired"),
    _fence("frame.abandoned", "frame", "expired"),
    _fence("loop.shard.enqueued", "command", "held"),
    _fence("loop.shard.enqueued", "frame", "free"),
    _fence("loop.shard.done", "frame", "held"),
    _fence("loop.shard.attempt_failed", "frame", "held"),
    _fence("loop.shard.failed", "frame", "held"),
    _fence("loop.shard.failed", "frame", "expired"),
    _fence("loop.shard.abandoned", "frame", "expired"),
    _fence("execution.requested", "command", "free", only="child"),
    _fence("execution.requested", "command", "held"),
)

MUTATIONS: Final = (
    Mutation(
        "ring-of-steps",
        "An execution whose steps go round is never ended by its limits.",
        frozenset({"limits end a ring of steps"}),
        put_in=_no_limits,
    ),
    Mutation(
        "slot-dies-at-five",
        "The fifth lost worker ends a slot, whatever it has committed since the first.",
        frozenset({"a slot that makes progress is not given up"}),
        only="loop",
        change=_whole_life,
    ),
    Mutation(
        "last-token-opens",
        "A server stops asking for tokens when its last one ends.",
        frozenset({"a server that has had tokens asks for one"}),
        change=lambda part: OnlyLive(part) if isinstance(part, MemoryTokens) else part,
    ),
    Mutation(
        "any-version",
        "A decision is recorded though the execution went on since it was made.",
        frozenset(),
        change=forgetting(_any_version),
    ),
    Mutation(
        "slots-at-any-version",
        "A moment of a schedule is claimed though another scheduler has moved the schedule on.",
        frozenset({"a moment is claimed once", "no moment is forgotten"}),
        is_rare=True,
        change=forgetting(partial(_any_version, of="slot.")),
    ),
    Mutation(
        "projector-saves-anyway",
        "Rows of a projector are saved though another has moved the checkpoint meanwhile.",
        frozenset({"projections are what the events say"}),
        is_rare=True,
        change=lambda part: SavesAnyway(part) if isinstance(part, MemoryProjectionStore) else part,
    ),
    Mutation(
        "outbox-marks-anyway",
        "A row of the outbox is marked by a process that no longer holds it.",
        frozenset({"what is delivered stays delivered"}),
        is_rare=True,
        change=lambda part: MarksAnyway(part) if isinstance(part, MemoryOutbox) else part,
    ),
    *FENCES,
)

GUARDED_TWICE: Final = (
    _fence("command.completed", "command", "free", only="child"),
    _fence("command.failed", "command", "free", only="child"),
)
"""Fences whose loss changes nothing by itself.

They guard the end of a command that waits for a child. Nobody claims such a command, so only another end of it can come
between; that moves the version of the execution's stream, which the end expects as well, and stands under the same key.
"""

BY_NAME: Final = {one.name: one for one in MUTATIONS}
