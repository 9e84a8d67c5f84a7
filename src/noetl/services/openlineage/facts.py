"""What is to be told about an attempt at a task, before it is put into words of OpenLineage. Values only."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from noetl.model.dataset import Field
from noetl.model.lineage import Lineage
from noetl.model.stream import Scope

State = Literal["START", "COMPLETE", "FAIL", "ABORT"]
_IDS = uuid5(NAMESPACE_URL, "noetl:openlineage")


class DatasetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset in one generation."""

    dataset_uuid: str
    name: str
    dataset_version: str
    location: str
    """The address of its files."""
    schema: tuple[Field, ...] = ()


class OutputFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt made of a dataset."""

    dataset: DatasetFacts
    rows: int
    bytes: int
    lineage: Lineage | None = None


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, and what became of it."""

    scope: Scope
    state: State
    time: datetime
    task_id: str
    attempt: int
    dag: str
    job: str
    operator: str
    execution_id: int
    nominal: datetime
    """When it was due."""
    inputs: tuple[DatasetFacts, ...] = ()
    outputs: tuple[OutputFacts, ...] = ()
    names: dict[str, DatasetFacts] = {}
    """The datasets that lineage speaks of, by their ids."""
    error: str | None = None


def run_id(scope: Scope, task_id: str, attempt: int) -> str:
    """Return the id of an attempt, the same however often it is told."""
    return str(_id(scope, f"task/{task_id}/{attempt}"))


def parent_id(scope: Scope, execution_id: int) -> str:
    """Return the id of the execution an attempt belongs to."""
    return str(_id(scope, f"execution/{execution_id}"))


def _id(scope: Scope, name: str) -> UUID:
    return uuid5(_IDS, f"{scope.tenant_id}\x1f{scope.organization_id}\x1f{name}")
