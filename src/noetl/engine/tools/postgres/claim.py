"""Claims rows in a transaction that stays open until the caller has written down what it claimed. Never commits by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg

from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.pools import Pool, pool_of
from noetl.engine.tools.postgres.problems import BadCommand, problem_of
from noetl.engine.tools.postgres.script import BETWEEN, joined, run_one
from noetl.engine.tools.postgres.statements import gives_rows, leaves_traces, read_command, stands_alone
from noetl.engine.tools.postgres.target import Connection
from noetl.engine.tools.sql_split import Statement
from noetl.errors import NoetlError

# A worker that is paused with a claim open must not keep its rows from all others for ever.
_BEGIN = f"BEGIN{BETWEEN}SET LOCAL idle_in_transaction_session_timeout = '5min'"


class ClaimFailed(NoetlError):
    """The claiming statement failed; `problem` says why and whether trying again may help."""

    code = "claim_failed"

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"the claim failed: {problem.message}")
        self.problem = problem


class Claim:
    """An open transaction that holds claimed rows."""

    def __init__(self, connection: Connection, pool: Pool, found: tuple[Statement, ...], params: Any) -> None:
        self._connection = connection
        self._pool = pool
        self._found = found
        self._params = params
        self.committed = False

    async def rows(self) -> list[dict[str, Any]]:
        """Run the claiming statement, the last one of the command, and return its rows; the transaction stays open."""
        try:
            try:
                return await self._claim()
            except asyncpg.InvalidCachedStatementError:
                # The table changed under a prepared statement, which the driver has forgotten now.
                await self._connection.execute("ROLLBACK")
                return await self._claim()
        except Exception as error:
            raise ClaimFailed(problem_of(error, self._pool.place)) from error

    async def _claim(self) -> list[dict[str, Any]]:
        *before, claiming = self._found
        await self._connection.execute(f"{_BEGIN}{BETWEEN}{joined(before)}")
        return (await run_one(self._connection, self._pool, claiming, self._params)).rows

    async def commit(self) -> None:
        """Make the claim last."""
        try:
            await self._connection.execute("COMMIT")
        except Exception as error:
            raise ClaimFailed(problem_of(error, self._pool.place)) from error
        self.committed = True


@asynccontextmanager
async def open_claim(call: Call) -> AsyncIterator[Claim]:
    """Lend a claim on a pooled connection of its own; what is not committed by the end is rolled back."""
    place = "PostgreSQL"
    async with AsyncExitStack() as stack:
        try:
            found = read_command(call.options.get("command"))
            if any(stands_alone(statement) for statement in found) or not gives_rows(found[-1]):
                raise BadCommand("a claim is one statement with RETURNING or a SELECT, without transaction control")
            pool = await pool_of(call)
            place = pool.place
            connection = await stack.enter_async_context(pool.connection(restore=leaves_traces(found)))
        except Exception as error:
            raise ClaimFailed(problem_of(error, place)) from error
        yield Claim(connection, pool, found, call.options.get("params"))
