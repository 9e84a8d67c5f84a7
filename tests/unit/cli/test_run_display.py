"""What a run says about itself."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from noetl.cli.run.display import progress
from noetl.cli.run.ending import SHOWN_LINES, bounded
from noetl.cli.run.live import Live


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [
        (0, 100, "0 of 100 rows, 0 rows/s"),
        (50, 100, "50 of 100 rows, 25 rows/s, about 2 s left"),
        (50, None, "50 rows, 25 rows/s"),
    ],
)
def test_a_loop_says_how_far_it_is_and_when_it_will_be_done(done: int, total: int | None, said: str) -> None:
    assert progress(done, total, 2.0) == said


def test_a_short_result_is_one_line_and_a_long_one_is_cut() -> None:
    assert bounded({"a": "ü"}) == '{"a": "ü"}'
    lines = bounded(list(range(500))).splitlines()
    assert len(lines) == SHOWN_LINES + 1
    assert lines[-1] == f"… {502 - SHOWN_LINES} more lines; --json prints all"
    assert len(bounded("x" * 10_000)) < 600


def test_the_live_picture_lets_ended_steps_scroll_by_and_keeps_loops_with_their_rows() -> None:
    written = io.StringIO()
    live = Live(Console(file=written, force_terminal=True, width=120, color_system=None))
    with live.shown():
        live.begin("load", 40, is_loop=True, done=10)
        live.advance("load", 10)
        live.advance("of another execution", 5)
        live.begin("wait", None, is_loop=False, done=0)
        live._progress.refresh()
        live.end("wait", "done", 1.5)
    assert "20 of 40 rows" in written.getvalue()
    assert "done wait 1.500 s" in written.getvalue()
