"""Where templates stand in their file, kept in the shape of what they are part of.

A mapping has a mapping of origins, a list a list, a text that is a template one origin; all else has nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Origin(msgspec.Struct, frozen=True):
    """The line of the file in which a template is written."""

    line: int
    is_block: bool = False
    """Written with `|`: its text begins on the next line, and its lines are those of the file."""

    def of(self, line: int) -> int:
        """Return the line of the file for a line of the template, as far as the way it was written tells."""
        return self.line + line if self.is_block else self.line


def limit_origins(step_origins: Any) -> Any:
    """Return the origins of a step's time limit, whichever way it is written."""
    spec = origins_at(step_origins, "spec")
    return origins_at(spec, "timeout") or origins_at(spec, "policy", "lifecycle", "timeout_s")


def origins_at(origins: Any, *path: str | int) -> Any:
    """Return the origins of what stands under a path, or None."""
    for key in path:
        if isinstance(origins, dict):
            origins = origins.get(key)
        elif isinstance(origins, list) and isinstance(key, int):
            origins = origins[key]
        else:
            return None
    return origins
