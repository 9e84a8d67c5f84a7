"""The `snowflake` tool: SQL goes in, the rows of its last statement and of each one come out."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, NamedTuple

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call
from noetl.engine.tools.snowflake.problems import problem_of
from noetl.engine.tools.snowflake.session import Session, find_target, session_of
from noetl.engine.tools.snowflake.statements import bound, names_of, rows_of, statements_in, text_of_call

_COUNTS = "number of "


class Result(NamedTuple):
    """What a statement gave."""

    rows: list[dict[str, Any]]
    columns: list[str]
    row_count: int

    def told(self) -> dict[str, Any]:
        """Return it as an entry of the task's result."""
        return {"status": "ok", "rows": self.rows, "row_count": self.row_count, "columns": self.columns}


class SnowflakeTool:
    """Runs SQL on the account a credential names."""

    kind: ClassVar[str] = "snowflake"

    async def run(self, call: Call) -> Outcome:
        """Run the statements one after the other in one session; each is committed by itself."""
        place, found = "Snowflake", list[str]()
        limits = [float(limit) for limit in (call.options.get("timeout"), call.timeout) if limit]
        limit = min(limits, default=None)
        try:
            async with asyncio.timeout(limit):
                found = await asyncio.to_thread(statements_in, await text_of_call(call))
                target = await find_target(call.credentials, call.auth)
                place = target.place
                async with session_of(call, target, limit) as session:
                    results = [await _run_one(session, text, call.options.get("params")) for text in found]
        except Exception as error:
            problem = problem_of(error, place)
            said = {"message": problem.message, "sqlstate": problem.code}
            empty = {"rows": [], "row_count": 0, "columns": [], "statement_count": len(found), "errors": [said]}
            return Outcome(status="error", data={"status": "error", **empty}, error=problem)
        each = {f"command_{number}": result.told() for number, result in enumerate(results)}
        return Outcome(data={**results[-1].told(), "statement_count": len(found), **each})


async def _run_one(session: Session, text: str, params: Any) -> Result:
    sent, values = bound(text, params)

    def work() -> Result:
        with session.connection.cursor() as cursor:
            cursor.execute(sent, values)
            names = names_of(cursor.description)
            if names and names[0].startswith(_COUNTS):
                return Result([], [], max(0, int(cursor.rowcount or 0)))
            rows = rows_of(cursor.description, cursor.fetchall())
            return Result(rows, names, len(rows))

    return await session.run(work)
