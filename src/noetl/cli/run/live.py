"""The live picture of a run on a terminal: steps that ended scroll by, those under way stay at the bottom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.text import Text

_COLOURS = {"done": "green", "skipped": "yellow"}


class _Rows(ProgressColumn):
    """How many rows of a loop are done, and how quickly."""

    def render(self, task: Task) -> Text:
        """Return the words for one step."""
        if not task.fields["is_loop"]:
            return Text("")
        of = "" if task.fields["rows"] is None else f" of {task.fields['rows']}"
        speed = f", {task.speed:.0f} rows/s" if task.speed else ""
        return Text(f"{task.completed:.0f}{of} rows{speed}")


class _Bar(BarColumn):
    """How far a loop is; other steps have no bar."""

    def render(self, task: Task) -> ProgressBar:
        """Return the bar of one step."""
        return super().render(task) if task.fields["is_loop"] else ProgressBar(width=0)


class _Left(TimeRemainingColumn):
    """When a loop will be done, as far as its speed tells."""

    def render(self, task: Task) -> Text:
        """Return the words for one step."""
        return super().render(task) if task.fields["is_loop"] and task.fields["rows"] else Text("")


class Live:
    """The steps under way."""

    def __init__(self, console: Console | None = None) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), _Bar(), _Rows(), TimeElapsedColumn(), _Left())
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Hold the terminal for the time of the block."""
        with self._progress:
            yield

    def begin(self, step: str, rows: int | None, *, is_loop: bool, done: int) -> None:
        """Show a step as under way."""
        self._drop(step)
        self._tasks[step] = self._progress.add_task(step, total=rows, completed=done, rows=rows, is_loop=is_loop)

    def advance(self, step: str, rows: int) -> None:
        """Move a loop's bar; rows of other executions have none."""
        if step in self._tasks:
            self._progress.advance(self._tasks[step], rows)

    def end(self, step: str, end: str, seconds: float) -> None:
        """Let a step scroll by as ended."""
        self._drop(step)
        colour = _COLOURS.get(end, "red")
        self._progress.console.print(Text.assemble((end, colour), f" {step} ", (f"{seconds:.3f} s", "dim")))

    def _drop(self, step: str) -> None:
        task = self._tasks.pop(step, None)
        if task is not None:
            self._progress.remove_task(task)
