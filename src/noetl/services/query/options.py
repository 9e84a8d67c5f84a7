"""How much a query may take: values that whoever starts the engines makes from settings."""

from __future__ import annotations

import msgspec

from noetl.spark.lake.integrity.checks import Bound


class DuckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What DuckDB processes are told."""

    home: str
    """Directory for what queries do not keep in memory; each process has one of its own below it."""
    lake_root: str
    lake_options: dict[str, str] = {}
    memory: str = "1GB"
    threads: int = 2
    spill: str = "4GB"
    """Bytes on disk that one query may use beside its memory."""
    most_bytes: int = 256 << 20
    """Bytes of one answer."""
    processes: int = 4
    """Queries that run at a time."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of queries."""

    rows: int = 10_000
    """Rows of an answer where the caller names no number."""
    most_rows: int = 1_000_000
    seconds: float = 30.0
    most_seconds: float = 600.0
    most_bytes: int = 256 << 20
    """Bytes of one answer."""
    concurrent: int = 4
    """Queries that one organization may ask at a time."""
    proof: Bound = Bound(bytes=16 << 30, seconds=30.0)
    """What one query may hash of files that its node has not proven yet, beside its own time."""
