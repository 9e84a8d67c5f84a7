"""Runs the calls of many rows in one transaction: at first all together, and if that fails each behind a savepoint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import asyncpg

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Resources
from noetl.engine.tools.postgres.params import bind, named
from noetl.engine.tools.postgres.pools import Pool, pool_for
from noetl.engine.tools.postgres.problems import BadCommand, problem_of
from noetl.engine.tools.postgres.script import BETWEEN, Result, commanded, joined, run_one
from noetl.engine.tools.postgres.sql import statements_of
from noetl.engine.tools.postgres.statements import gives_rows, leaves_traces, stands_alone
from noetl.engine.tools.postgres.target import Connection, find_target
from noetl.engine.tools.postgres.tool import PostgresTool, answered, refused, within
from noetl.engine.tools.sql_split import Statement

_TEXT_LIMIT = 1 << 20
"""Characters sent in one round trip; the server reads a text whole before it does anything."""


_OWN_FAULTS = (asyncpg.PostgresError, BadCommand, ValueError)
"""What one call may have done wrong without the connection being lost."""


_TOGETHER = Result([], [], None)
"""What is known of a statement that was sent together with others."""


class Piece(NamedTuple):
    """The statements of one call."""

    call: Call
    found: tuple[Statement, ...]
    is_text: bool = False
    """Whether it can be sent together with others."""
    repeated: str | None = None
    """The text of a command with parameters: calls with the same text differ in their values alone."""


def _piece(call: Call, found: tuple[Statement, ...]) -> Piece:
    params = call.options.get("params")
    if params is None:
        return Piece(call, found, is_text=not gives_rows(found[-1]))
    if len(found) != 1 or gives_rows(found[0]):
        return Piece(call, found)
    return Piece(call, found, repeated=f"{'names' if isinstance(params, dict) else 'list'} {found[0].text}")


async def run_batch(calls: Sequence[Call], resources: Resources) -> list[Outcome]:
    """Run calls to one database in one transaction and return their outcomes in order.

    A call that fails fails alone: the others are committed. The row count of a call that was sent together with others
    is None, because the server tells only that of the last one. Calls that control transactions run on their own.
    """
    outcomes: dict[int, Outcome] = {}
    pieces: dict[int, Piece] = {}
    loaded: dict[str, str] = {}
    for place, call in enumerate(calls):
        try:
            async with within([call]):
                found = await statements_of(call, loaded)
        except Exception as error:
            outcomes[place] = refused(problem_of(error, "PostgreSQL"), 0)
            continue
        if any(stands_alone(statement) for statement in found):
            outcomes[place] = await PostgresTool().run(call)
        else:
            pieces[place] = _piece(call, found)
    if pieces:
        done = await _run(list(pieces.values()), resources)
        outcomes |= dict(zip(pieces, done, strict=True))
    return [outcomes[place] for place in range(len(calls))]


async def _run(pieces: list[Piece], resources: Resources) -> list[Outcome]:
    first, where = pieces[0].call, "PostgreSQL"
    restore = any(leaves_traces(piece.found) for piece in pieces)
    try:
        async with within([piece.call for piece in pieces]):
            target = await find_target(first.credentials, first.auth, first.options.get("pool"))
            pool = await pool_for(resources, target)
            where = pool.place
            async with pool.connection(restore=restore) as connection:
                try:
                    return await _together(connection, pool, pieces)
                except _OWN_FAULTS:
                    if connection.is_closed():
                        raise
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK")
                return await _each(connection, pool, pieces)
    except Exception as error:
        problem = problem_of(error, where)
        return [refused(problem, len(piece.found)) for piece in pieces]


async def _together(connection: Connection, pool: Pool, pieces: list[Piece]) -> list[Outcome]:
    """Run everything in one transaction, texts joined into few round trips."""
    if pieces[0].repeated is not None and all(piece.repeated == pieces[0].repeated for piece in pieces):
        # What the driver sends for many values at once is a transaction of its own.
        return [answered(result, 1) for result in await _send_many(connection, pool, pieces)]
    results = list[Result]()
    waiting, size = list[Piece](), 0
    if not all(piece.is_text for piece in pieces) or sum(_size(piece) for piece in pieces) > _TEXT_LIMIT:
        await connection.execute("BEGIN")
    for kind, group in groupby(pieces, lambda piece: piece.repeated or piece.is_text):
        if isinstance(kind, str):
            results += await _send_many(connection, pool, list(group))
            continue
        for piece in group:
            if not piece.is_text or size + _size(piece) > _TEXT_LIMIT:
                results += await _send(connection, waiting)
                waiting, size = [], 0
            if piece.is_text:
                waiting.append(piece)
                size += _size(piece)
            else:
                results.append(await _run_piece(connection, pool, piece))
        results += await _send(connection, waiting)
        waiting, size = [], 0
    if connection.is_in_transaction():
        await connection.execute("COMMIT")
    return [answered(result, len(piece.found)) for piece, result in zip(pieces, results, strict=True)]


def _size(piece: Piece) -> int:
    return sum(len(statement.text) for statement in piece.found)


async def _send(connection: Connection, pieces: Sequence[Piece]) -> list[Result]:
    if not pieces:
        return []
    tag = await connection.execute(BETWEEN.join(joined(piece.found) for piece in pieces))
    return [_TOGETHER] * (len(pieces) - 1) + [commanded(tag)]


async def _send_many(connection: Connection, pool: Pool, pieces: Sequence[Piece]) -> list[Result]:
    """Send one command with the values of many calls; the driver lets no round trip wait for the one before."""
    given = [named(piece.call.options.get("params")) for piece in pieces]
    is_listed = not isinstance(pieces[0].call.options.get("params"), dict)
    bound = await bind(connection, pool, pieces[0].found[0].text, given[0], listed=is_listed)
    await connection.executemany(bound.text, [bound.values(each) for each in given])
    return [_TOGETHER] * len(pieces)


async def _run_piece(connection: Connection, pool: Pool, piece: Piece) -> Result:
    params = piece.call.options.get("params")
    if piece.is_text:
        return commanded(await connection.execute(joined(piece.found)))
    *before, last = piece.found
    if params is None and before:
        await connection.execute(joined(before))
    elif params is not None:
        for statement in before:
            await run_one(connection, pool, statement, params)
    return await run_one(connection, pool, last, params)


async def _each(connection: Connection, pool: Pool, pieces: list[Piece]) -> list[Outcome]:
    """Run everything in one transaction with a savepoint before every call."""
    outcomes = list[Outcome]()
    await connection.execute("BEGIN")
    for piece in pieces:
        await connection.execute("SAVEPOINT call")
        try:
            outcome = answered(await _run_piece(connection, pool, piece), len(piece.found))
        except _OWN_FAULTS as error:
            if connection.is_closed():
                raise
            outcome = refused(problem_of(error, pool.place), len(piece.found))
            await connection.execute("ROLLBACK TO SAVEPOINT call")
        await connection.execute("RELEASE SAVEPOINT call")
        outcomes.append(outcome)
    try:
        await connection.execute("COMMIT")
    except asyncpg.IntegrityConstraintViolationError:
        # A constraint that is checked only now: which call broke it shows when each has a transaction of its own.
        return [await PostgresTool().run(piece.call) for piece in pieces]
    return outcomes
