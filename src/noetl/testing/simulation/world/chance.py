"""Everything by which two runs of the same seed could differ, taken from the seed instead: ids, jitter, the time of day."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, tzinfo
from types import ModuleType, SimpleNamespace
from typing import Any

from noetl.engine.catalog import playbooks
from noetl.engine.dispatch import children, drafts
from noetl.kernel.projections.stores import memory as projections
from noetl.services.schedule import claims, slot_leases, slot_runner
from noetl.services.schedule import drafts as schedule_drafts

_COUNT_SECONDS: tuple[ModuleType, ...] = (claims, slot_leases, slot_runner)
_TELL_THE_TIME: tuple[ModuleType, ...] = (playbooks, children, drafts, projections, schedule_drafts)


@contextmanager
def from_seed(seed: int, now: Callable[[], datetime], seconds: Callable[[], float]) -> Iterator[None]:
    """Let the process's sources of chance and time be the seed's for the block."""
    ids = random.Random(f"{seed}/uuid")  # noqa: S311 - they have to differ, not to be secret
    before = random.getstate()
    random.seed(f"{seed}/jitter")

    class Simulated(datetime):
        """The time of day in the world."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return now().astimezone(tz)

    with ExitStack() as stack:
        stack.enter_context(replaced(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)))
        for module in _TELL_THE_TIME:
            stack.enter_context(replaced(module, "datetime", Simulated))
        for module in _COUNT_SECONDS:
            stack.enter_context(replaced(module, "time", SimpleNamespace(monotonic=seconds)))
        try:
            yield
        finally:
            random.setstate(before)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put something else in the place of an attribute for the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
