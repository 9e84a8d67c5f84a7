"""The settings of queries over datasets."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from noetl.runtime.setting_types import Count, Section, Text


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
