"""What rows of a loop failed with: the end of a frame goes in, its failed rows and their problems come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from noetl.dispatch.facts.port import Facts
from noetl.model.stream import Scope

SHOWN_CHARACTERS = 500
"""Of a problem, where it stands in a sentence."""


class RowProblem(msgspec.Struct, frozen=True, order=True):
    """One row that failed, or all rows of a frame that failed as a whole, and why."""

    first_index: int
    rows: int
    frame_id: int
    message: str

    @property
    def place(self) -> str:
        """Which rows these are."""
        last = self.first_index + self.rows - 1
        return f"row {self.first_index}" if self.rows == 1 else f"rows {self.first_index} to {last}"

    @property
    def text(self) -> str:
        """The message in one line, not too long for a sentence."""
        line = " ".join(self.message.split())
        return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def row_problems(
    frame_id: int, first_index: int, row_count: int, result: Mapping[str, Any], error: str | None
) -> Iterator[RowProblem]:
    """Give what the end of a frame says of rows that failed: the first few of them, or the frame itself."""
    if errors := result.get("errors"):
        for one in errors:
            yield RowProblem(one.get("index", first_index), 1, frame_id, str(one.get("message") or "failed"))
    elif error is not None:
        yield RowProblem(first_index, row_count, frame_id, error)


async def first_problem(facts: Facts, scope: Scope, execution_id: int, loop_id: int) -> str | None:
    """Say which row of a loop is the first that failed, and why; None where no event tells."""
    end = await facts.first_failure(scope, execution_id, loop_id)
    if end is None:
        return None
    found = min(
        row_problems(end.frame_id, end.first_index or 0, end.row_count or 0, end.result, end.error), default=None
    )
    return None if found is None else f"{found.place}: {found.text}"
