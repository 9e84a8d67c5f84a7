"""A bar of the bytes that were hashed, for commands that go through the files of datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hashing_bar(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Give what is told the bytes of each file; shown on a terminal alone."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("hashing"), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda size: bar.advance(task, size)
