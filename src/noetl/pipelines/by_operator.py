"""Chooses where a task runs by its operator: those this process knows run here, all others on Spark."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager

from noetl.model.task import TaskGrant
from noetl.pipelines.runner import Run, Runner


class ByOperator:
    """Two runners as one."""

    def __init__(self, here: Collection[str], in_process: Runner, on_spark: Runner) -> None:
        self._here = frozenset(here)
        self._in_process = in_process
        self._on_spark = on_spark

    def open(self, grant: TaskGrant, bundle: bytes) -> AbstractAsyncContextManager[Run]:
        """Open the place this task belongs to."""
        runner = self._in_process if grant.operator in self._here else self._on_spark
        return runner.open(grant, bundle)
