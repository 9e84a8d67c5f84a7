"""What is kept of a work's log, and of Spark's."""

from __future__ import annotations

import io
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from noetl.spark.drivers.logs import BoundedLog, PrintStream, SparkLog, masked, printed_to


@given(st.lists(st.text(max_size=9), max_size=60), st.integers(2, 40))
def test_a_log_keeps_its_head_and_its_tail(pieces: list[str], limit: int) -> None:
    log, whole = BoundedLog(limit), "".join(pieces)
    for piece in pieces:
        log.write(piece)
    half = limit // 2
    lost = len(whole) - 2 * half
    assert log.text() == (
        whole if lost <= 0 else f"{whole[:half]}\n[{lost} characters left out]\n{whole[len(whole) - half :]}"
    )
    assert log.text() == log.text()


def test_prints_go_to_whoever_the_thread_works_for() -> None:
    otherwise, one, two = io.StringIO(), BoundedLog(), BoundedLog()
    stream = PrintStream(otherwise)

    def work(log: BoundedLog, text: str) -> None:
        with printed_to(log):
            print(text, file=stream)

    threads = [threading.Thread(target=work, args=pair) for pair in ((one, "first"), (two, "second"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("nobody's", file=stream)
    assert (one.text(), two.text(), otherwise.getvalue()) == ("first\n", "second\n", "nobody's\n")


def test_lines_of_a_marker_are_found_with_what_follows_them(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    log = SparkLog(path)
    assert (log.position(), log.lines(["work-1"], 0)) == (0, "")
    path.write_text("2026-01-01T00:00:00.000Z WARN  <work-1> Old: before\n")
    since = log.position()
    with path.open("a") as file:
        file.write("2026-01-01T00:00:01.000Z ERROR <work-1> Executor: odd\njava.lang.Exception: odd\n\tat x\n")
        file.write("2026-01-01T00:00:02.000Z WARN  <work-11> Other: not ours\n\tat y\n")
        file.write("2026-01-01T00:00:03.000Z WARN  <> Nobody: not ours\n")
        file.write("2026-01-01T00:00:04.000Z WARN  <work-2> Shuffle: ours too\n")
    assert log.lines(["work-1", "work-2"], since) == (
        "2026-01-01T00:00:01.000Z ERROR Executor: odd\njava.lang.Exception: odd\n\tat x\n"
        "2026-01-01T00:00:04.000Z WARN  Shuffle: ours too\n"
    )


def test_secrets_are_blotted_out_however_deep_they_are() -> None:
    secrets = [{"api": {"token": "abcdef"}}, "abcdefgh", ["pass word"], "no", 7]
    assert masked("abcdefgh abcdef pass word no 7", secrets) == "*** *** *** no 7"
