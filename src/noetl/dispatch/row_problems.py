"""What rows of a loop failed with: the end of a frame goes in, its failed rows and their problems come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import orjson

from noetl.ledger.database import Database
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.stream import Scope

SHOWN_CHARACTERS = 500
"""Of a problem, where it stands in a sentence."""

_BEGUN = sql_texts(types_of_attempts("begun", at="frame"))
_FAILED = sql_texts(types_of_attempts("failed", at="frame"))
_FIRST = f"""
SELECT e.frame_id, coalesce(e.current_index, d.current_index) AS first_index,
       (e.meta ->> 'row_count')::integer AS row_count, e.result, e.error
FROM noetl.known_event AS e LEFT JOIN noetl.known_event AS d ON d.execution_id = e.execution_id AND d.loop_id = e.loop_id
    AND d.frame_id = e.frame_id AND d.event_type IN ({_BEGUN}) AND d.stream_version = 1
WHERE e.execution_id = $1 AND e.loop_id = $2 AND (e.event_type IN ({_FAILED})
    OR (e.event_type = 'frame.committed' AND e.meta ->> 'failed_count' IS NOT NULL))
ORDER BY first_index, e.frame_id LIMIT 1
"""  # noqa: S608 - ours


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


async def first_problem(database: Database, scope: Scope, execution_id: int, loop_id: int) -> str | None:
    """Say which row of a loop is the first that failed, and why; None where no event tells."""
    async with database.transaction(scope) as connection:
        row = await connection.fetchrow(_FIRST, execution_id, loop_id)
    if row is None:
        return None
    result = orjson.loads(row["result"]) if row["result"] else {}
    found = min(
        row_problems(row["frame_id"], row["first_index"] or 0, row["row_count"] or 0, result, row["error"]),
        default=None,
    )
    return None if found is None else f"{found.place}: {found.text}"
