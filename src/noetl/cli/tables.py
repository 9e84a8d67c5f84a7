"""Rows go in, a table for a terminal comes out as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def rendered(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the rows under their column names; the first column is never broken."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # Rich decides by the real terminal about colours and width, so it only renders here and click prints.
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get()
