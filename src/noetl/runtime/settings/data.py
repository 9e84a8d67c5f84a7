"""The settings of what reads data: queries, the event lake, streaming views, and curated views over all tenants."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from noetl.runtime.settings.types import Count, Section, Text


def _size(given: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*(?:MB|GB|MiB|GiB)", given):
        raise PydanticCustomError("size", "must be a size such as 512MB or 2GB")
    return given


Size = Annotated[Text, AfterValidator(_size)]


class Query(Section):
    """How much queries over datasets may take."""

    rows: Count = Field(default=10_000, description="Rows of an answer where the caller names no number.")
    max_rows: Count = Field(default=1_000_000, description="Rows of an answer that a caller may ask for.")
    timeout_seconds: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="Seconds a query may take where the caller names none."
    )
    max_timeout_seconds: float = Field(
        default=600.0, gt=0, allow_inf_nan=False, description="Seconds a caller may allow a query."
    )
    max_answer_bytes: Count = Field(default=268_435_456, description="Bytes of one answer.")
    concurrent: Count = Field(default=4, description="Queries one organization may ask one server at a time.")
    processes: Count = Field(default=4, description="DuckDB processes of one server; each answers one query at a time.")
    memory: Size = Field(default="1GB", description="Memory of one query on DuckDB, such as 512MB or 2GB.")
    spill: Size = Field(default="4GB", description="Disk that one query on DuckDB may use beside its memory.")
    proof_timeout_seconds: float = Field(
        default=30.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds one query may hash files that this node has not proven yet, beside its own time.",
    )
    proof_max_bytes: Count = Field(
        default=17_179_869_184, description="Bytes one query may hash of files that this node has not proven yet."
    )
    threads: Count = Field(default=2, description="Threads of one query on DuckDB.")


class EventLakeSettings(Section):
    """How the event lake follows the ledger."""

    trigger_seconds: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Seconds between the batches of `noetl lake sync --follow`."
    )
    batch_events: Count = Field(
        default=1_000_000, description="Positions of the ledger that one batch covers, at most."
    )
    partition_events: Count = Field(default=50_000, description="Positions that one Spark task reads, at most.")
    checkpoint: Text | None = Field(
        default=None,
        description="Directory or address for Spark's checkpoints that driver and executors share; null is the lake itself.",
    )
    compact_files: Count = Field(
        default=64, description="Files of a day after which `--follow` puts small ones together."
    )
    target_bytes: Count = Field(default=134_217_728, description="How large a file becomes by that.")
    facts: bool = Field(default=True, description="Whether the facts are kept up to date with the lake.")
    facts_seconds: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="Seconds between refreshes of the facts while following."
    )
    verify_positions: Count = Field(
        default=100_000, description="Positions of one range that `noetl lake verify` compares by one checksum."
    )


class Views(Section):
    """How streaming views are run."""

    enabled: bool = Field(
        default=True, description="Whether servers run deployed views by themselves; `noetl views run` always does."
    )
    checkpoint: Text | None = Field(
        default=None,
        description="Directory or address of Spark's state, shared by driver and executors; null is `views` in `runtime.home`.",
    )
    together: Count = Field(default=4, description="Views that one process runs at a time.")
    partitions: Count = Field(default=4, description="Parts in which the state of a new view is kept.")
    every_seconds: float = Field(
        default=2.0, gt=0, allow_inf_nan=False, description="How often a process looks for views that nobody runs."
    )
    lease_seconds: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="How long a process holds a view without a heartbeat."
    )


class Curated(Section):
    """What operators may read of all tenants."""

    views: tuple[Text, ...] = Field(
        default=(), description="Curated views of your own, each as `module:name` of a CuratedView."
    )
    timeout_seconds: float = Field(
        default=120.0, gt=0, allow_inf_nan=False, description="Seconds that computing a curated view may take."
    )
