"""The one tool of simulated workers: it takes a while, keeps account of what it did, and fails where a playbook wants it to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import ClassVar

from noetl.engine.tools.outcome import Outcome, failed
from noetl.engine.tools.port import Call
from noetl.testing.simulation.world.process import Process


class Effects:
    """What was done to the outside world, by the key of the effect."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()
        self.rows: set[tuple[int, int]] = set()
        """Executions and rows that anybody has tried."""


class SimulatedTool:
    """Stands for code of a user."""

    kind: ClassVar[str] = "python"
    keeps_time = False

    def __init__(self, process: Process, effects: Effects) -> None:
        self._process = process
        self._effects = effects

    async def run(self, call: Call) -> Outcome:
        """Take some time, and come to what the input says."""
        number, chance = call.input["n"], self._process.random
        self._effects.tries[call.key] += 1
        self._effects.rows.add((call.execution_id, number))
        await asyncio.sleep(call.input.get("seconds") or chance.choice((0.01, 0.1, 0.5, 2.0, 3.5)))
        if number in call.input.get("bad", ()):
            return failed("transform", f"row {number} is bad")
        if self._effects.tries[call.key] <= call.input.get("fails", 0):
            return failed("connection", "it fails at first", retryable=True)
        return Outcome(data={"n": number})
