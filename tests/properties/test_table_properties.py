"""No table loses text, whatever the texts and the terminal are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import noetl
from noetl.cli.terminal.tables import first_line, measured, rendered, shown

_WORDS = st.sampled_from(
    [
        "refused",
        "/var/lib/files/part-00001-of-00042.parquet",
        "org.apache.spark.sql.AnalysisException:",
        "漢字",
        "e\u0301",
        "x",
    ]
)
_TEXTS = st.lists(_WORDS | st.text(max_size=12), max_size=25).map(" ".join)
_TABLES = st.integers(1, 8).flatmap(
    lambda count: st.lists(st.lists(_TEXTS, min_size=count, max_size=count), min_size=1, max_size=3)
)


_FITS = 29


def _ink(text: str) -> str:
    """Everything of a text that takes room where it is seen: a mark alone, without a letter to stand on, takes none."""
    return "".join(one for one in re.sub(r"\s+", "", text) if cell_len(one))


@given(_TABLES, st.integers(1, 220), st.booleans(), st.booleans())
def test_every_text_of_a_table_is_printed_whole(rows: list[list[str]], width: int, whole: bool, terminal: bool) -> None:
    """INV-164: a cell is broken into lines and never cut, at any width, on a terminal and off it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
        table = rendered([f"c{place}" for place in range(len(rows[0]))], rows, whole=whole)
    for row in rows:
        lines = table.split("\n", 1)[1].split("\n")
        widths = measured([f"c{place}" for place in range(len(row))], rows)
        start = 0
        for place, cell in enumerate(row[:-1]):
            column = "".join(_cells(line, start, widths[place]) for line in lines)
            assert _ink(shown(cell)) in _ink(column)
            start += widths[place] + 2
        assert _ink(shown(row[-1])) in _ink("".join(_cells(line, start, 10_000) for line in lines))


def _cells(line: str, start: int, width: int) -> str:
    """What stands in these cells of a line."""
    from rich.cells import split_graphemes

    at, found = 0, ""
    for first, last, wide in split_graphemes(line)[0]:
        found += line[first:last] if start <= at < start + width else ""
        at += wide
    return found


@given(st.lists(st.text("abcdefgh-/.:", min_size=1, max_size=_FITS), min_size=1, max_size=40), st.integers(1, 160))
def test_a_word_that_fits_is_not_broken(words: list[str], width: int) -> None:
    """INV-164: lines are broken between words, so that a word can be found and copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        table = rendered(("attempt", "error"), [("1", " ".join(words))])
    assert table.split()[3:] == words
    assert all(cell_len(line) <= max(width, len("attempt") + 2 + _FITS + 1) for line in table.splitlines())


def test_what_a_terminal_would_act_on_is_printed_as_an_escape() -> None:
    """INV-164: a text can neither hide itself nor what stands beside it."""
    table = rendered(("a", "b"), [("x\rhidden", "\x1b[2Kgone\x08\x07 \ud800")])
    assert table.splitlines()[1] == r"x\rhidden  \x1b[2Kgone\x08\x07 \ud800"


def test_the_first_line_of_an_error_says_that_there_is_more() -> None:
    """INV-164: what a list leaves out is marked."""
    assert (first_line("a\nb\n"), first_line(" a \n"), first_line(None)) == ("a …", "a", "")


def test_every_table_is_made_in_one_place() -> None:
    """INV-164: no command makes a table of its own that could cut its cells."""
    source = Path(noetl.__file__).parent
    assert not [file.name for file in source.rglob("*.py") if "rich.table" in file.read_text()]
