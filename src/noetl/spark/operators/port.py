"""What an operator is given for a task and what it must return: the promise that plugins keep too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl.model.task import CheckResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from noetl.spark.drivers.protocol import Work
    from noetl.spark.lake.storage import Lake


@dataclass(frozen=True)
class TaskContext:
    """What a function of the user may know about the task it works for."""

    dag: str
    job: str
    partition_key: str
    partition: Mapping[str, str | None]
    execution_id: int
    attempt: int
    config: Mapping[str, Any]
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    asked: Callable[[], bool] = field(default=lambda: False, repr=False)

    @property
    def stopping(self) -> bool:
        """Whether the function should end soon, with what it has, since its worker is to stop."""
        return self.asked()


@dataclass(frozen=True)
class Given:
    """One task as an operator sees it: its session, its inputs by alias, its lake."""

    session: SparkSession
    work: Work
    inputs: Mapping[str, DataFrame]
    lake: Lake

    @property
    def config(self) -> Mapping[str, Any]:
        """What the job tells its operator."""
        return self.work.grant.config


@dataclass(frozen=True)
class Made:
    """What an operator returns: rows by output number, and how checks of its own came out."""

    outputs: Mapping[int, DataFrame]
    checks: tuple[CheckResult, ...] = ()
    state: dict[str, Any] | None = None
    """What the job remembers for its next task; None leaves what it remembers as it is."""


Operator = Callable[[Given], Made]
