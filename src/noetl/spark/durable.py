"""Files that were written are made to survive a power loss before the ledger speaks of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from noetl.spark.lake import Lake

_AT_ONCE: Final = 8


def make_durable(lake: Lake, paths: Sequence[str]) -> None:
    """Flush files and the directories that name them; an object store promises as much by its answer."""
    directory = lake.directory
    if directory is None or not paths:
        return
    files = [directory / path for path in paths]
    with ThreadPoolExecutor(min(_AT_ONCE, len(files))) as pool:
        list(pool.map(_flush, files))
        list(pool.map(_flush, sorted(_above(directory, files))))


def _above(root: Path, files: Iterable[Path]) -> set[Path]:
    """Return every directory from the lake's root down to the files: any of them may be new."""
    found: set[Path] = set()
    for file in files:
        for parent in file.parents:
            if parent in found or parent == root.parent:
                break
            found.add(parent)
    return found


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
