"""The `noop` kind: does nothing and is always well; it carries the rules and the `set` of its task."""

from __future__ import annotations

from typing import ClassVar

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call


class NoopTool:
    """Does nothing."""

    kind: ClassVar[str] = "noop"

    async def run(self, call: Call) -> Outcome:
        """Return an outcome without data."""
        return Outcome()
