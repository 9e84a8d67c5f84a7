"""Python's search for unreachable cycles, made seldom where events, rows and states are many: they have none, and each
look goes through them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MILLIONS_FOLDED: Final = 200_000
"""How many new objects are worth a look where nothing but events is folded."""


@contextmanager
def seldom_searched(new_objects: int = MILLIONS_FOLDED) -> Iterator[None]:
    """Look only after so many new objects, for the time of the block."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], new_objects), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
