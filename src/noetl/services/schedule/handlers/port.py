"""What a slot does when its moment has come: the promise that every handler keeps, and the platform's handlers by name."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from noetl.errors import InputError, NotFound
from noetl.model.stream import Scope
from noetl.services.schedule.spec import Definition, Named, Spec

RESULT_LIMIT: Final = 16 * 1024
"""Bytes of JSON a slot may leave as its result; what is larger belongs into a payload or a log."""
ERROR_LIMIT: Final = 4_000


class SlotRun(msgspec.Struct, frozen=True, kw_only=True):
    """The slot that is run. Whatever is started under `key` is started once, however often the slot is run."""

    scope: Scope
    schedule_id: str
    name: str
    target: dict[str, Any]
    plan_time: datetime
    attempt: int
    key: str
    runner: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to; with `skipped_reason` there was nothing to do."""

    run_id: int | None = None
    rows_affected: int | None = None
    result: dict[str, Any] = {}
    skipped_reason: str | None = None


class Handler(Protocol):
    """Does what a slot is planned for. It may be cancelled at any time, and may be run again for the same moment."""

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Do it; what is raised is a failed attempt."""
        ...


class PlatformJobs:
    """What the platform itself does from time to time; each name stands for one handler and its schedule."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._specs: dict[str, Spec] = {}

    def register(self, name: str, handler: Handler, spec: Spec) -> None:
        """Add a job; a name that is taken is refused."""
        if name in self._handlers:
            raise InputError(f"there is a job {name} of the platform already")
        self._handlers[name], self._specs[name] = handler, spec.checked()

    @property
    def names(self) -> list[str]:
        """The jobs there are."""
        return sorted(self._handlers)

    def definitions(self) -> list[Definition]:
        """Return the schedules these jobs have."""
        return [
            Definition(named=Named(name=name), kind="platform", target={"handler": name}, spec=self._specs[name])
            for name in self.names
        ]

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Run the job a slot names."""
        handler = self._handlers.get(str(slot.target.get("handler")))
        if handler is None:
            raise NotFound(f"there is no job {slot.target.get('handler')} of the platform in this process")
        return await handler(slot)
