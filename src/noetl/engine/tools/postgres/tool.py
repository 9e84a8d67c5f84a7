"""The `postgres` tool: SQL goes in, what its last statement gave comes out, with what the others gave beside it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar

from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.pools import pool_of
from noetl.engine.tools.postgres.problems import SUCCESS, problem_of
from noetl.engine.tools.postgres.script import Result, run_script
from noetl.engine.tools.postgres.sql import statements_of
from noetl.engine.tools.postgres.statements import leaves_traces


class PostgresTool:
    """Runs SQL on the database a credential names."""

    kind: ClassVar[str] = "postgres"

    async def run(self, call: Call) -> Outcome:
        """Run the statements in one transaction and return the result of the last one and of each before it."""
        place, count = "PostgreSQL", 0
        try:
            async with within([call]):
                found = await statements_of(call)
                count = len(found)
                pool = await pool_of(call)
                place = pool.place
                async with pool.connection(restore=leaves_traces(found)) as connection:
                    results = await run_script(connection, pool, found, call.options.get("params"))
        except Exception as error:
            return refused(problem_of(error, place), count)
        return answered(results[-1], count, results[:-1])


def within(calls: Sequence[Call]) -> AbstractAsyncContextManager[Any]:
    """Return a context that ends with TimeoutError when the longest time any of the calls has is over."""
    longest = max(_limit(call) for call in calls) if len(calls) > 1 else _limit(calls[0])
    return nullcontext() if math.isinf(longest) else asyncio.timeout(longest)


def _limit(call: Call) -> float:
    own = call.options.get("timeout")
    return min(float(own) if own else math.inf, call.timeout or math.inf)


def answered(result: Result, count: int, before: Sequence[Result] = ()) -> Outcome:
    """Return the outcome of a task that went well; `before` are the results of all statements but the last.

    Templates and code find the last as an entry of its own, too, which is not recorded: it would be the same once more.
    """
    data: dict[str, Any] = {
        "status": "ok",
        "rows": result.rows,
        "row_count": result.row_count,
        "columns": result.columns,
        "statement_count": count,
    }
    if result.types:
        data["types"] = dict(result.types)
    for number, one in enumerate(before):
        entry = {"status": "ok", "rows": one.rows, "row_count": one.row_count, "columns": one.columns}
        data[f"command_{number}"] = entry
    return Outcome(data=data, helpers={"pg": {"code": SUCCESS, "sqlstate": SUCCESS}})


def refused(problem: Problem, count: int) -> Outcome:
    """Return the outcome of a task that failed."""
    said = {"message": problem.message, "sqlstate": problem.pg_code}
    data = {"status": "error", "rows": [], "row_count": 0, "columns": [], "statement_count": count, "errors": [said]}
    helpers = {"pg": {"code": problem.pg_code, "sqlstate": problem.pg_code}}
    return Outcome(status="error", data=data, error=problem, helpers=helpers)
