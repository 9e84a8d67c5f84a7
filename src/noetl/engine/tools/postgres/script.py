"""Runs the statements of one task on one connection in as few round trips as they need to tell what each came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import asyncpg

from noetl.engine.tools.postgres.params import bind, named
from noetl.engine.tools.postgres.pools import Pool
from noetl.engine.tools.postgres.problems import BadCommand
from noetl.engine.tools.postgres.statements import gives_rows, is_silent, stands_alone
from noetl.engine.tools.postgres.target import Connection
from noetl.engine.tools.postgres.values import needed, rows_of, types_of
from noetl.engine.tools.sql_split import Statement

BETWEEN = "\n;\n"
"""Joins statements: the line break ends a comment the first one may end with."""


class Result(NamedTuple):
    """What a statement gave; the count is None when the server was not asked for it."""

    rows: list[dict[str, Any]]
    columns: list[str]
    row_count: int | None
    types: Mapping[str, str] = MappingProxyType({})
    """The types of columns whose values JSON cannot tell, as datasets name them."""


NOTHING = Result([], [], 0)
"""What a statement gave that neither has rows nor touches any."""


async def run_script(connection: Connection, pool: Pool, found: Sequence[Statement], params: Any) -> list[Result]:
    """Run statements in one transaction, or one by one where they control transactions themselves; return what each gave."""
    try:
        return await _run(connection, pool, found, params)
    except asyncpg.InvalidCachedStatementError:
        # A table changed under a prepared statement; the driver has forgotten it now and nothing was done.
        pool.forget()
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")
        return await _run(connection, pool, found, params)


async def _run(connection: Connection, pool: Pool, found: Sequence[Statement], params: Any) -> list[Result]:
    if any(stands_alone(statement) for statement in found):
        results = [await run_one(connection, pool, statement, params) for statement in found]
        if connection.is_in_transaction():
            raise BadCommand("the SQL begins a transaction and does not end it; it was rolled back")
        return results
    if len(found) == 1:
        return [await run_one(connection, pool, found[0], params)]
    if params is None and all(map(is_silent, found[:-1])) and not gives_rows(found[-1]):
        # Statements sent together are one transaction to the server, which tells of the last one alone.
        return [*[NOTHING] * (len(found) - 1), commanded(await connection.execute(joined(found)))]
    results = await _each(connection, pool, found, params)
    await connection.execute("COMMIT")
    return results


async def _each(connection: Connection, pool: Pool, found: Sequence[Statement], params: Any) -> list[Result]:
    """Begin a transaction and run each statement; those that have nothing to tell wait for the next that has."""
    results: list[Result] = []
    waiting = ["BEGIN"]
    for statement in found:
        if params is None and is_silent(statement):
            waiting.append(statement.text)
            results.append(NOTHING)
            continue
        if params is None and not gives_rows(statement):
            results.append(commanded(await connection.execute(BETWEEN.join([*waiting, statement.text]))))
        else:
            if waiting:
                await connection.execute(BETWEEN.join(waiting))
            results.append(await run_one(connection, pool, statement, params))
        waiting = []
    if waiting:
        await connection.execute(BETWEEN.join(waiting))
    return results


def joined(found: Sequence[Statement]) -> str:
    """Return statements as one text."""
    return BETWEEN.join(statement.text for statement in found)


def commanded(tag: str) -> Result:
    """Return the result that a command's tag tells, such as `UPDATE 3`."""
    count = tag.rpartition(" ")[2]
    return Result([], [], int(count) if count.isdigit() else 0)


async def run_one(connection: Connection, pool: Pool, statement: Statement, params: Any) -> Result:
    """Run one statement."""
    text, values = statement.text, list[str | None]()
    types = pool.met.get(text)
    if params is not None:
        given = named(params)
        bound = await bind(connection, pool, text, given, listed=not isinstance(params, dict))
        text, values = bound.text, bound.values(given)
        types = bound.types if values else pool.met.get(text)
    if not gives_rows(statement):
        return commanded(await connection.execute(text, *values))
    records = None if types is None else await connection.fetch(text, *values)
    if types is not None and records:
        return _fetched(records, list(records[0].keys()), types)
    prepared = await connection.prepare(text, name="")
    attributes = prepared.get_attributes()
    columns = [attribute.name for attribute in attributes]
    types = pool.meet(text, types_of(attributes))
    return _fetched(await prepared.fetch() if records is None else [], columns, types)


def _fetched(records: list[asyncpg.Record], columns: list[str], types: dict[str, str]) -> Result:
    rows = rows_of(records)
    return Result(rows, columns, len(records), needed(types, rows))
