"""A dataset as a plain directory of Parquet files: files of the lake go in, proven copies come out, all of them or none."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from noetl.errors import InputError
from noetl.pipelines.datasets.dataset_reader import PartitionFile
from noetl.pipelines.tables.lake_files import TOGETHER, LakeFiles

TOLD: Final = "_dataset.json"
"""What the directory is a copy of; readers of Parquet pass over names that begin so."""


def export(
    files: LakeFiles,
    parts: Sequence[PartitionFile],
    directory: Path,
    told: dict[str, Any],
    on_bytes: Callable[[int], None] = lambda size: None,
) -> list[Path]:
    """Copy files into a directory that is empty or not there yet; after an error there is nothing new. This blocks."""
    _refuse_full(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        names = [f"part-{place:05d}.parquet" for place in range(len(parts))]
        copy_all(files, parts, [beside / name for name in names], on_bytes)
        listed = [
            {"file": name, "partition": part.partition_key, "rows": part.entry.rows, "sha256": part.entry.sha256}
            for name, part in zip(names, parts, strict=True)
        ]
        (beside / TOLD).write_text(json.dumps({**told, "files": listed}, indent=2) + "\n")
        beside.chmod(0o755)
        # Only an empty directory is replaced by this: whoever filled it meanwhile keeps what is theirs.
        beside.rename(directory)
    except OSError as problem:
        raise InputError(f"{directory} cannot be written: {os.strerror(problem.errno or 0)}") from problem
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(beside)
    return [directory / name for name in names]


def copy_all(
    files: LakeFiles,
    parts: Sequence[PartitionFile],
    targets: Sequence[Path],
    on_bytes: Callable[[int], None] = lambda size: None,
) -> None:
    """Copy files to paths of this machine, some at a time, each proven by its SHA-256; this blocks."""

    def one(part: PartitionFile, target: Path) -> None:
        files.copy(part.entry, target)
        on_bytes(part.entry.bytes)

    with ThreadPoolExecutor(TOGETHER) as pool:
        copying = [pool.submit(one, part, target) for part, target in zip(parts, targets, strict=True)]
        try:
            for each in copying:
                each.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def local_copies(files: LakeFiles, parts: Sequence[PartitionFile], scratch: Path) -> tuple[Path, ...]:
    """Return files of this machine, all proven: those of a lake that is a directory as they are, others fetched first.

    This blocks.
    """
    there = [files.local(part.entry) for part in parts]
    if None not in there:
        files.prove([part.entry for part in parts])
        return tuple(path for path in there if path is not None)
    scratch.mkdir(parents=True)
    targets = [scratch / f"{place}.parquet" for place in range(len(parts))]
    copy_all(files, parts, targets)
    return tuple(targets)


def _refuse_full(directory: Path) -> None:
    if directory.is_dir() and any(directory.iterdir()):
        raise InputError(f"{directory} is not empty", hint="name a directory that is empty or not there yet")
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file", hint="name a directory that is empty or not there yet")
