"""The times of a simulated world: one that only runs, and the database's, which somebody may set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from noetl.testing.simulation.world.loop import SimulatedLoop

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class DatabaseClock:
    """The clock that leases last by. Setting it moves it for everybody at once."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        """Return the time."""
        return BEGIN + timedelta(seconds=self._loop.time()) + self._ahead

    def step(self, seconds: float) -> None:
        """Set the clock forward, or back."""
        self._ahead += timedelta(seconds=seconds)

    def milliseconds(self) -> int:
        """Return the time that ids are minted by, which nobody sets."""
        return int(BEGIN.timestamp() * 1000 + self._loop.time() * 1000)
