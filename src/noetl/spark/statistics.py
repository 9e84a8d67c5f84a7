"""Parquet footers go in, manifest entries with rows, digest and column statistics come out. No data page is decoded."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

import pyarrow.parquet as pq

from noetl.model.dataset import FileEntry
from noetl.spark.durable import make_durable
from noetl.spark.integrity.footers import footer_in
from noetl.spark.integrity.stamps import stamp_of
from noetl.spark.lake import Lake

Given = TypeVar("Given")
Made = TypeVar("Made")
_LONGEST_TEXT: Final = 128
_MOST_COLUMNS: Final = 200
_THREADS: Final = max(4, os.cpu_count() or 1)


def measured(lake: Lake, paths: Sequence[str]) -> list[FileEntry]:
    """Return the entries of files that were just written, in the order of their paths."""
    make_durable(lake, paths)
    return in_parallel(lambda path: _measured(lake, path), paths)


def in_parallel(work: Callable[[Given], Made], given: Sequence[Given]) -> list[Made]:
    """Do a small piece of file work for each, on a few threads."""
    if len(given) < 2:
        return [work(one) for one in given]
    with ThreadPoolExecutor(min(_THREADS, len(given))) as pool:
        return list(pool.map(work, given))


def column_statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return `min`, `max` and `nulls` of each plain column, where every row group tells them."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    found: dict[str, Any] = {}
    if not groups:
        return found
    for index in range(min(metadata.num_columns, _MOST_COLUMNS)):
        described = metadata.schema.column(index)
        if described.path != described.name or "." in described.path or described.max_repetition_level:
            continue
        stats = _column([group.column(index) for group in groups])
        if stats:
            found[described.name] = stats
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON knows it, or none where that would be long or inexact."""
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST_TEXT else None
        case datetime():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return None


def _column(chunks: Sequence[Any]) -> dict[str, Any]:
    every = [chunk.statistics for chunk in chunks]
    if any(one is None for one in every):
        return {}
    stats: dict[str, Any] = {}
    if all(one.has_null_count for one in every):
        stats["nulls"] = sum(one.null_count for one in every)
    valued = [one for one, chunk in zip(every, chunks, strict=True) if _has_values(one, chunk)]
    if valued and all(one.has_min_max for one in valued):
        low, high = plain(min(one.min for one in valued)), plain(max(one.max for one in valued))
        if low is not None and high is not None:
            stats |= {"min": low, "max": high}
    return stats


def _has_values(stats: Any, chunk: Any) -> bool:
    return not (stats.has_null_count and stats.null_count == chunk.num_values)


def _measured(lake: Lake, path: str) -> FileEntry:
    with lake.opened(path) as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        size = opened.tell()
        footer = footer_in(opened, size)
        metadata = pq.read_metadata(opened)
    return FileEntry(
        path=path,
        bytes=size,
        rows=metadata.num_rows,
        sha256=digest,
        stats=column_statistics(metadata),
        stamp=stamp_of(lake, path),
        footer=footer,
    )
