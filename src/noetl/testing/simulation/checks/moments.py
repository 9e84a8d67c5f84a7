"""What must be true of a schedule's moments: each is claimed once or passed over, and an attempt ends once, by whoever runs it."""

from __future__ import annotations

from typing import Final, Literal

from noetl.model.event import Event

Standing = Literal["runs", "waits", "over"]
_AFTERWARDS: Final[dict[str, Standing]] = {
    "slot.claimed": "runs",
    "slot.attempt_failed": "waits",
    "slot.abandoned": "waits",
    "slot.succeeded": "over",
    "slot.failed": "over",
}
"""How a moment stands after an event of it."""


class Moments:
    """The slots of a schedule, by the events that were recorded of them."""

    def __init__(self) -> None:
        self._slots: dict[str, tuple[int, Standing]] = {}
        """For each moment the last attempt, and how it stands."""

    @property
    def count(self) -> int:
        """How many moments were claimed."""
        return len(self._slots)

    def wrong(self, event: Event) -> str | None:
        """Take an event of a slot, and say what is wrong with it."""
        if "plan_time" not in event.meta:
            return None
        kind, moment, attempt = event.event_type, event.meta["plan_time"], event.meta["attempt"]
        before, standing = self._slots.get(moment, (0, "waits"))
        self._slots[moment] = (attempt, _AFTERWARDS[kind])
        if kind == "slot.claimed":
            return None if attempt == before + 1 and standing == "waits" else f"{moment} is claimed twice"
        # A moment that waited for another attempt until it was too old is given up without one.
        ends_here = standing == "runs" or (standing == "waits" and kind == "slot.failed")
        return None if attempt == before and ends_here else f"attempt {attempt} of {moment} ends, and does not run"
