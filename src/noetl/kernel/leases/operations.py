"""The operations on leases of any kind, each one statement on an open transaction; the database's clock decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl.kernel.leases import statements
from noetl.kernel.leases.kinds import Kind
from noetl.kernel.leases.statements import Given
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.lease import Proof


async def claim(
    connection: Connection,
    kind: Kind,
    seconds: float,
    limit: int,
    *,
    within: tuple[Any, ...] = (),
    holder: str = "",
    returning: str = "",
) -> list[tuple[Proof, Any]]:
    """Lease free rows, the first ones first, and return what proves each lease and what else its row says.

    `within` are the first columns of the key, where only some of the rows are asked for.
    """
    query = statements.claim(kind, len(within), returning)
    rows = await connection.fetch(query, *within, seconds, limit, *([holder] if kind.holder else []))
    return [
        (Proof(tuple(row[name] for name, _ in kind.key), row["attempt"], row["token"]), row) for row in rows
    ]  # fmt: skip


async def renew(
    connection: Connection, kind: Kind, proofs: Sequence[Proof], seconds: Sequence[float] = (), returning: str = ""
) -> dict[Proof, Any]:
    """Make leases last longer, and return those that are held; the others are lost.

    `seconds` are given for kinds whose rows do not say how long a lease is.
    """
    given = () if kind.seconds else (seconds,)
    rows = await connection.fetch(statements.renew(kind, returning), *_columns(kind, proofs), *given)
    return {proofs[row["place"] - 1]: row for row in rows}


async def hold(connection: Connection, kind: Kind, proofs: Sequence[Proof]) -> frozenset[Proof]:
    """Return which leases last, and let nobody else take their rows before the open transaction ends."""
    rows = await connection.fetch(statements.hold(kind), *_columns(kind, proofs))
    return frozenset(proofs[row["place"] - 1] for row in rows)


async def holds(connection: Connection, kind: Kind, proofs: Sequence[Proof]) -> frozenset[Proof]:
    """Return which leases last now."""
    rows = await connection.fetch(statements.holds(kind), *_columns(kind, proofs))
    return frozenset(proofs[row["place"] - 1] for row in rows)


async def gone(connection: Connection, kind: Kind, proofs: Sequence[Proof]) -> frozenset[Proof]:
    """Return which leases are somebody else's now, or of rows that have ended."""
    rows = await connection.fetch(statements.gone(kind), *_columns(kind, proofs))
    return frozenset(proofs[row["place"] - 1] for row in rows)


async def give_back(
    connection: Connection,
    kind: Kind,
    proofs: Sequence[Proof],
    wait: Sequence[float | None] | None = None,
    given: Given = (),
    values: Sequence[Sequence[Any]] = (),
    also: str = "",
) -> frozenset[Proof]:
    """Let go of leases, and return those that were still the holder's; a row is free again after its `wait`, or at once.

    `also` sets more columns of the rows, from the `values` that are `given` with each.
    """
    waits = [None] * len(proofs) if wait is None else wait
    rows = await connection.fetch(statements.give_back(kind, given, also), *_columns(kind, proofs), waits, *values)
    return frozenset(proofs[row["place"] - 1] for row in rows)


def _columns(kind: Kind, proofs: Sequence[Proof]) -> list[list[Any]]:
    keys = [[proof.key[place] for proof in proofs] for place in range(len(kind.key))]
    return [*keys, [proof.attempt for proof in proofs], [proof.token for proof in proofs]]
