"""Rows go in, a table for a terminal comes out as text. Cells are broken into lines, never cut.

Every table that a command prints is made here. Rich is only asked how many cells a text takes and what the terminal is
like: its own tables cut a cell where the columns need more room than the terminal has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final
from unicodedata import category

LAST_WIDTH: Final = 30
"""The last column is broken where the terminal is too narrow, but not below this."""

_GAP: Final = "  "
_TAB: Final = 8
_WORDS: Final = re.compile(r"\s*\S+")
_ACTING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Controls, halves of characters and separators of lines: a terminal would act on them instead of showing them."""


def rendered(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: bool = False,
    head: bool = True,
    right: Collection[str] = (),
    least: Sequence[int] = (),
) -> str:
    """Return the rows under their column names; lines may be longer than the terminal, only the last column is broken.

    `whole` breaks not even that one where nobody looks at a terminal: what a program reads, or a person copies, stays whole.
    `head` prints the names, `right` says which columns end at the same place, and `least` how wide columns are at least.
    """
    from rich.console import Console

    cells = [[shown(cell) for cell in row] for row in rows]
    widths = measured(columns, cells, least=least)
    # Rich decides by the real terminal about colours and width.
    console = Console()
    if not whole or console.is_terminal:
        room = console.width - sum(widths[:-1]) - len(_GAP) * (len(columns) - 1)
        widths[-1] = min(widths[-1], max(room, min(widths[-1], LAST_WIDTH)))
    places = {place for place, name in enumerate(columns) if name in right}
    lines = [line for row in cells for line in _lines(row, widths, places)]
    if not head:
        return "".join(f"{line}\n" for line in lines)
    bold, plain = ("\x1b[1m", "\x1b[0m") if console.is_terminal and not console.no_color else ("", "")
    names = [f"{bold}{line}{plain}" for line in _lines([shown(name) for name in columns], widths, places)]
    return "".join(f"{line}\n" for line in [*names, *lines])


def measured(columns: Sequence[str], rows: Iterable[Sequence[str]], *, least: Sequence[int] = ()) -> list[int]:
    """Return how wide each column is: as wide as its longest line."""
    from rich.cells import cell_len

    widths = [cell_len(shown(name)) for name in columns]
    for place, wide in enumerate(least):
        widths[place] = max(widths[place], wide)
    for row in rows:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], *(cell_len(line) for line in shown(cell).split("\n")))
    return widths


def first_line(text: str | None) -> str:
    """Return what a list has room for of an error, marked where there is more of it."""
    first, _, rest = (text or "").strip().partition("\n")
    return f"{first.rstrip()} …" if rest else first


def shown(text: str) -> str:
    """Return a text as a terminal may have it: tabs as spaces, and what is no character to be seen as an escape."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").expandtabs(_TAB)
    return "".join(
        character
        if character == "\n" or category(character) not in _ACTING
        else character.encode("unicode_escape").decode()
        for character in text
    )


def _lines(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> Iterator[str]:
    from rich.cells import cell_len

    cells = [list(_broken(cell, width)) for cell, width in zip(row, widths, strict=True)]
    for line in zip_longest(*cells, fillvalue=""):
        filled = (
            f"{' ' * (width - cell_len(text))}{text}" if place in right else f"{text}{' ' * (width - cell_len(text))}"
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        yield _GAP.join(filled).rstrip()


def _broken(cell: str, width: int) -> Iterator[str]:
    """Give a cell's lines, none wider than this: broken between words, and within one that is wider by itself."""
    from rich.cells import cell_len

    for line in cell.split("\n"):
        if cell_len(line) <= width:
            yield line
            continue
        taken = ""
        for word in _WORDS.findall(line):
            if cell_len(taken) + cell_len(word) <= width:
                taken += word
                continue
            if taken:
                yield taken
            *full, taken = _chopped(word.lstrip() if taken else word, width)
            yield from full
        yield taken


def _chopped(word: str, width: int) -> list[str]:
    """Part a word into pieces of at most this width; a character that is wider stands alone."""
    from rich.cells import cell_len, split_graphemes

    if cell_len(word) <= width:
        return [word]
    pieces = [""]
    for start, end, _ in split_graphemes(word)[0]:
        if pieces[-1] and cell_len(pieces[-1]) + cell_len(word[start:end]) > width:
            pieces.append("")
        pieces[-1] += word[start:end]
    return pieces
