"""What must be true of a schedule's moments: each is claimed once or passed over, and an attempt ends once, by whoever runs it."""

from __future__ import annotations

from noetl.model.event import Event


class Moments:
    """The slots of a schedule, by the events that were recorded of them."""

    def __init__(self) -> None:
        self._slots: dict[str, tuple[int, bool]] = {}
        """For each moment the last attempt, and whether it runs."""

    @property
    def count(self) -> int:
        """How many moments were claimed."""
        return len(self._slots)

    def wrong(self, event: Event) -> str | None:
        """Take an event of a slot, and say what is wrong with it."""
        if "plan_time" not in event.meta:
            return None
        moment, attempt = event.meta["plan_time"], event.meta["attempt"]
        before, runs = self._slots.get(moment, (0, False))
        claimed = event.event_type == "slot.claimed"
        self._slots[moment] = (attempt, claimed)
        if claimed:
            return None if attempt == before + 1 and not runs else f"{moment} is claimed twice"
        return None if attempt == before and runs else f"attempt {attempt} of {moment} ends, and does not run"
