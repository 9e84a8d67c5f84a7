"""What is told about rows: where they lie, who made them of what, and what caused it. Values only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One event on the way from what was asked for to the commit."""

    event_id: str
    event_type: str
    time: datetime
    execution_id: str
    said: str


class ReadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that a task read, at the version it had then."""

    dataset: str
    dataset_uuid: str
    dataset_version: str
    partition_key: str
    version: int
    task_id: str | None
    """Who made it."""
    manifest: str | None
    """The payload that lists its files."""


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """The code that ran."""

    dag_version_id: str
    bundle_digest: str
    code_digest: str
    job_hash: str
    operator: str


class FrameOf(msgspec.Struct, frozen=True, kw_only=True):
    """The frame of a playbook whose result a row is."""

    execution_id: str
    step: str | None
    frame_id: str | None
    event_id: str
    payload: str | None


class Maker(msgspec.Struct, frozen=True, kw_only=True):
    """A task that made rows, in the attempt that was committed."""

    task_id: str
    attempt: int
    dag: str
    job: str
    partition_key: str
    execution_id: str
    worker: str | None
    application_id: str | None
    code: Code
    inputs: tuple[ReadPart, ...]
    sent: dict[str, Any] | None
    """The payload that was sent to its source, if something was."""
    playbook_execution: str | None
    playbook: dict[str, Any] = {}
    causes: tuple[Cause, ...]
    """From the commit back to what started it all."""


class ExplainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    values: dict[str, Any]
    partition_key: str
    version: int
    """The version of the partition that brought it."""
    file: str
    place: int
    committed_at: datetime
    commit_event_id: str | None
    task_id: str
    attempt: int
    frame: FrameOf | None


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: rows, and once each the tasks that made them."""

    dataset: str
    dataset_uuid: str
    generation: str
    where: str
    as_of: str
    rows: tuple[ExplainedRow, ...]
    makers: tuple[Maker, ...]
    files: int
    opened: int
    more: bool
