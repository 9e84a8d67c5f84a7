"""Sees everything that is recorded and sent in a world, holds it against the invariants at every step, and tells the story."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import Event
from noetl.testing.engines.memory import SCOPE
from noetl.testing.simulation.checks.moments import Moments
from noetl.testing.simulation.checks.transitions import DISPATCHED, SLOT_LOST, Key, Seen, gave_up, seen, wrong
from noetl.testing.simulation.faults import MessageFault
from noetl.testing.simulation.world.loop import SimulatedLoop
from noetl.testing.simulation.world.playbooks import RING_STEPS
from noetl.testing.simulation.world.tool import Effects

_TERMINAL = frozenset(
    {"playbook.completed", "playbook.failed", "execution.failed", "execution.cancelled", "execution.completed"}
)
LOSSES = 5
"""As often a slot may be lost without a frame between before it is given up."""
_FRAME_ENDS = frozenset({"frame.committed", "frame.failed", "loop.shard.done", "loop.shard.failed"})


class Line(NamedTuple):
    """One line of a story."""

    at: float
    who: str
    what: str


class Broken(NamedTuple):
    """An invariant that does not hold."""

    invariant: str
    what: str


class Watch:
    """Knows, beside the ledger and by itself, what has been recorded so far."""

    def __init__(self, ledger: MemoryLedger, loop: SimulatedLoop, effects: Effects) -> None:
        self._ledger = ledger
        self._loop = loop
        self._effects = effects
        self._seen = [0] * len(ledger._shards)
        self._versions: Counter[str] = Counter()
        self.lines: list[Line] = []
        self.broken: Broken | None = None
        self.stop: asyncio.Future[None] = loop.create_future()
        """Done when an invariant is broken."""
        self.names: dict[int, str] = {}
        """What executions are called in the story."""
        self.status: dict[int, str] = {}
        """How executions ended, by the event that said so."""
        self.requested: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.ended: Counter[Key] = Counter()
        """Ends of commands and frames that are in the ledger."""
        self.given_up: set[int] = set()
        """Executions of which a command or frame was given up for good reason."""
        self.results: dict[int, dict[str, int]] = {}
        """What loops came to."""
        self.moments = Moments()
        self.on_end: Callable[[str], None] = lambda name: None
        """Called when an execution has ended."""
        self._parents: dict[int, int] = {}
        self._losses: Counter[tuple[int, str]] = Counter()
        self._rows: set[tuple[int, int]] = set()
        self._handed: Counter[int] = Counter()
        self._steps: Counter[int] = Counter()

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        if self.broken is None:
            self.lines.append(Line(self._loop.time(), who, what))

    def fail(self, invariant: str, what: str) -> None:
        """Take note that an invariant does not hold; only the first counts."""
        if self.broken is None:
            self.tell("!", f"{invariant}: {what}")
            self.broken = Broken(invariant, what)
            self.stop.set_result(None)

    def sent(self, who: str, path: str, fault: MessageFault | None) -> None:
        """See a message that is sent."""
        if fault is not None:
            self.tell(who, f"sends {path.rpartition('/')[2]}; {fault}")

    def before(self, transition: Transition) -> dict[Key, Seen | None]:
        """Look at the rows that a transition speaks of."""
        return seen(self._ledger.work, SCOPE, transition)

    def recorded(self, who: str, before: dict[Key, Seen | None] | None) -> None:
        """See what was recorded since the last time."""
        events = []
        for shard, kept in enumerate(self._ledger._shards):
            at = self._seen[shard]
            if len(kept) > at:
                events += kept[at:]
                self._seen[shard] = len(kept)
                self._check_dense(shard, at, kept[at:])
        beside = {event.event_type for event in events}
        for event in events:
            self.tell(who, self._said(event))
            self._check_row(event, before, beside)
            self._count(event)
        self._check_open({event.execution_id for event in events if event.event_type in _TERMINAL})

    def acknowledged(self, table: str, execution_id: int, name: str) -> None:
        """See that a worker was told that its work is recorded."""
        if self.ended[table, execution_id, name] != 1 and execution_id not in self.status:
            self.fail(
                "acknowledged facts stand once", f"the end of {table} {name} was acknowledged and is not recorded"
            )

    def _check_dense(self, shard: int, at: int, events: list[Event]) -> None:
        for place, event in enumerate(events, at + 1):
            if event.position != place:
                self.fail("positions are dense", f"position {event.position} of shard {shard} stands at {place}")
            self._versions[event.stream_id] += 1
            if event.stream_version != self._versions[event.stream_id]:
                self.fail(
                    "stream versions are dense", f"{event.stream_id} has version {event.stream_version} twice or late"
                )

    def _check_row(self, event: Event, before: dict[Key, Seen | None] | None, beside: set[str]) -> None:
        if before is not None and (problem := wrong(event, before, beside)) is not None:
            self.fail("only the holder of a lease writes", f"{self._said(event)}: {problem}")
        if event.idempotency_key is not None:
            self.keys[event.idempotency_key] += 1
            if self.keys[event.idempotency_key] > 1:
                self.fail(
                    "a fact stands once", f"{event.event_type} stands twice under the key {event.idempotency_key}"
                )
        if event.execution_id in self.status and event.stream_id == f"execution/{event.execution_id}":
            self.fail("what has ended stays as it is", f"{self._said(event)} after {self.status[event.execution_id]}")

    def _count(self, event: Event) -> None:
        kind, execution_id = event.event_type, event.execution_id
        command = (execution_id, event.command_id or "")
        if kind == "execution.requested":
            self._name(event)
        elif kind == "step.entered":
            self._steps[execution_id] += 1
            if self._steps[execution_id] > RING_STEPS:
                self.fail("limits end a ring of steps", f"{self._of(event)} enters step {self._steps[execution_id]}")
        elif kind in _TERMINAL:
            self.status[execution_id] = kind
            self.on_end(f"{self._of(event)}/{execution_id}")
        elif kind in DISPATCHED:
            self._handed[event.stage_id or 0] = max(
                self._handed[event.stage_id or 0], (event.current_index or 0) + event.meta["row_count"]
            )
        elif kind in _FRAME_ENDS:
            self._end_frame(event)
        elif kind in ("command.completed", "command.failed"):
            self._end_command(event)
        elif kind == "stage.closed":
            self._close_stage(event)
        elif kind.startswith("slot.") and (problem := self.moments.wrong(event)) is not None:
            self.fail("a moment is claimed once", problem)
        if kind in SLOT_LOST and kind != "command.returned":
            self._losses[command] += 1

    def _end_frame(self, event: Event) -> None:
        self.ended["frame", event.execution_id, str(event.frame_id)] += 1
        if "failed" in event.event_type:
            self._give_up(event.execution_id)
        if event.command_id is not None:
            self._losses[event.execution_id, event.command_id] = 0
        if event.current_index is None:
            return
        for index in range(event.current_index, event.current_index + event.meta["row_count"]):
            if (event.stage_id or 0, index) in self._rows:
                self.fail("a row counts once", f"row {index} counts twice: {self._said(event)}")
            self._rows.add((event.stage_id or 0, index))

    def _end_command(self, event: Event) -> None:
        name = (event.execution_id, event.command_id or "")
        self.ended["command", *name] += 1
        if not gave_up(event):
            return
        losses = self._losses[name] + 1
        self._give_up(event.execution_id)
        if losses < LOSSES:
            self.fail(
                "a slot that makes progress is not given up",
                f"{self._said(event)} after {losses} of {LOSSES} losses since its last frame",
            )

    def _give_up(self, execution_id: int | None) -> None:
        """Take note that an execution, and with it those above, may fail."""
        while execution_id is not None:
            self.given_up.add(execution_id)
            execution_id = self._parents.get(execution_id)

    def _close_stage(self, event: Event) -> None:
        rows, failed, handed = event.meta["rows"], event.meta["failed"], self._handed[event.stage_id or 0]
        self.results[event.execution_id] = {"rows": rows, "failed": failed}
        if failed > handed:
            self.fail(
                "rows never tried are not failed", f"{failed} of {rows} rows failed, and {handed} were handed out"
            )

    def _check_open(self, ended: set[int]) -> None:
        for execution_id in ended:
            for table in ("command", "stage", "frame", "execution_head"):
                for row in self._ledger.work.rows(SCOPE, table).values():
                    if int(row["execution_id"]) == execution_id:
                        self.fail("what has ended has no open work", f"{self.names.get(execution_id)} has a {table}")

    def _name(self, event: Event) -> None:
        key = event.idempotency_key or ""
        self.requested[key] += 1
        if event.parent_execution_id is not None:
            self._parents[event.execution_id] = event.parent_execution_id
        parent = self.names.get(event.parent_execution_id or 0, "")
        self.names[event.execution_id] = f"{parent}'s child" if parent else key.rpartition("/")[2]

    def _of(self, event: Event) -> str:
        return self.names.get(event.execution_id, event.stream_id.partition("/")[0])

    def _said(self, event: Event) -> str:
        """Return an event in a few words."""
        what = event.command_id or event.node_name or ""
        rows = f" rows {event.current_index}+{event.meta.get('row_count')}" if event.current_index is not None else ""
        attempt = f" attempt {event.meta['attempt']}" if "attempt" in event.meta else ""
        worker = f" for {event.meta['worker']}" if "worker" in event.meta else ""
        error = f": {event.error}" if event.error else ""
        return f"{event.event_type} {self._of(event)} {what}{rows}{attempt}{worker}{error}"
