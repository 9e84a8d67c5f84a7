"""The figures of all processes of a node, each in a file of its own; those of processes that are gone are added up."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from noetl.payloads.figures import Figures, Told, together

_TELL_SECONDS: Final = 1.0
_TOTAL: Final = "total.json"


class NodeFigures:
    """Shows the figures of this process to others."""

    def __init__(self, folder: Path, owner: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._owner = owner
        self._changes, self._at = 0, 0.0

    def tell(self, figures: Figures, *, now: bool = False) -> None:
        """Write the figures down if there is news, at most once a second."""
        if figures.changes == self._changes or (not now and time.monotonic() - self._at < _TELL_SECONDS):
            return
        self._changes, self._at = figures.changes, time.monotonic()
        with suppress(OSError):
            _write(self._folder / f"{self._owner}.json", figures.told())

    def bury(self, owner: str) -> None:
        """Add the figures of an owner that is no more to those of all who went before; only under the node's lock."""
        path = self._folder / f"{owner}.json"
        with suppress(OSError):
            _write(self._folder / _TOTAL, together([_read(self._folder / _TOTAL), _read(path)]))
            path.unlink(missing_ok=True)


def told_in(folder: Path) -> Told:
    """Return the figures of all processes that told theirs in a folder."""
    return together(_read(path) for path in sorted(folder.glob("*.json")))


def _read(path: Path) -> Told:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Told)
    except (OSError, ValueError):
        return Told()


def _write(path: Path, told: Told) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(told))
    fresh.replace(path)
