"""Compares the outputs that a page shows with what its commands print.

A `text` block right after an `sh` block, with nothing between them, is what these commands print. Ids, digests, marks,
times and durations differ from run to run and are masked on both sides; a run of blanks counts as one. In the page, `…`
stands for the rest of a word or line, and a line of only `…` for any number of lines, none included.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.acceptance.test_docs import FENCE, Block, blocks_of

MASKS = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?", "TIME"),
    (r"\bm1\.[\w-]+", "MARK"),
    (r"\b\d{15,}\b", "ID"),
    (r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b", "DIGEST"),
    (r"\b\d[\d,]*(\.\d+)? (s|ms|KiB|bytes)\b", "AMOUNT"),
    (r"[ \t]+", " "),
)
PROGRESS = re.compile(r"^\w+: \d+( of \d+)? rows, \d+ rows/s")
"""A line that only slow machines print."""
TRACE = re.compile(r"^\++ ")
ANY_LINES = "…"


def shown_outputs(page: Path) -> list[tuple[Block, Block]]:
    """Return the blocks of commands whose output the page shows, each with that output."""
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    adjoining = {
        text.count("\n", 0, after.start()) + 1
        for before, after in pairwise(fences)
        if not text[before.end() : after.start()].strip()
    }
    blocks = blocks_of(page)
    return [
        (before, after)
        for before, after in pairwise(blocks)
        if before.language == "sh" and after.language == "text" and after.line in adjoining
    ]


def printed_by(block: Block, printed: str) -> list[str]:
    """Return the lines that the commands of a block printed, out of what the shell of the whole page printed."""
    lines = printed.splitlines()
    begin = lines.index(f"+ : {block.place}") + 1
    own: list[str] = []
    for line in lines[begin:]:
        if line.startswith(f"+ : {block.page.name}:"):
            break
        if not TRACE.match(line) and not PROGRESS.match(line) and line.strip():
            own.append(line)
    return own


def masked(line: str) -> str:
    """Return the line without what differs from run to run."""
    for pattern, mask in MASKS:
        line = re.sub(pattern, mask, line)
    return line.strip()


def pattern_of(shown: str) -> re.Pattern[str]:
    """Return what matches the masked output, line by line."""
    parts = []
    for line in shown.splitlines():
        if not line.strip():
            continue
        if line.strip() == ANY_LINES:
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(masked(part)) for part in line.split("…")) + r"\n")
    return re.compile("".join(parts))


def differences(page: Path, printed: str) -> list[str]:
    """Return, for each output of the page that is not what was printed, its place and what was printed."""
    found = []
    for commands, shown in shown_outputs(page):
        lines = printed_by(commands, printed)
        if not pattern_of(shown.text).fullmatch("".join(masked(line) + "\n" for line in lines)):
            found.append("\n".join([f"{shown.place} shows something else than was printed:", *lines]))
    return found
