"""Rows go in, a table for a terminal comes out as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LAST_WIDTH = 30
"""The last column is broken where the terminal is too narrow, but not below this."""


def rendered(columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: bool = False) -> str:
    """Return the rows under their column names; lines may be longer than the terminal, only the last column is broken.

    `whole` breaks not even that one where nobody looks at a terminal: what a program reads, or a person copies, stays whole.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(columns), *map(list, rows)]
    widths = [max(cell_len(row[place]) for row in cells) for place in range(len(columns))]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        # Measured here, since a digest or an id that is broken or cut is of no use to copy.
        last = place == len(columns) - 1
        table.add_column(name, overflow="fold", min_width=min(widths[place], LAST_WIDTH) if last else widths[place])
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    # Rich decides by the real terminal about colours and width, so it only renders here and click prints.
    console = Console()
    last_width = widths[-1] if whole and not console.is_terminal else min(widths[-1], LAST_WIDTH)
    needed = sum(widths[:-1]) + last_width + 2 * len(columns)
    console = Console(width=max(console.width, needed))
    with console.capture() as captured:
        console.print(table)
    return captured.get()
