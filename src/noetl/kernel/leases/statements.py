"""The SQL of leases, built from the declaration of a kind. Each text is made once, when its module is loaded.

Statements about several leases take one array for each column of the key, then attempts, tokens and what else belongs to
each lease, and answer with `place`, which counts the leases from 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from noetl.kernel.leases.kinds import CLOCK, Kind

Given = tuple[tuple[str, str], ...]
_SECONDS: Final[Given] = (("seconds", "double precision"),)
_WAIT: Final[Given] = (("wait", "double precision"),)


def candidates(kind: Kind, columns: str, also: str = "", limit: str = "$1", *, lock: bool = True) -> str:
    """Find the first free rows; locked against others who look, though only a transition or a claim takes them."""
    return f"""
SELECT {columns} FROM noetl.{kind.table}
WHERE {_all(kind.free(), also)}
ORDER BY {kind.first()} LIMIT {limit}
{"FOR UPDATE SKIP LOCKED" if lock else ""}
"""  # noqa: S608


def expired(kind: Kind, columns: str, row: str = "", joined: str = "", now: str = CLOCK, limit: str = "200") -> str:
    """Find rows whose holders were lost, the longest expired first."""
    named = f"noetl.{kind.table} AS {row} {joined}".rstrip() if row else f"noetl.{kind.table}"
    until = f"{row}.{kind.until}" if row else kind.until
    return f"""
SELECT {columns} FROM {named}
WHERE {kind.expired(row, now)} ORDER BY {until} LIMIT {limit}
"""  # noqa: S608


def next_end(kind: Kind, row: str) -> str:
    """Find when the first lease that somebody holds ends."""
    return f"SELECT {row}.{kind.until} FROM noetl.{kind.table} AS {row} WHERE {kind.held(row)} ORDER BY {row}.{kind.until} LIMIT 1"  # noqa: S608


def standing(kind: Kind, columns: str, row: str = "known", joined: str = "") -> str:
    """Read the row of a grant that nobody else got since, even if its lease ran out."""
    names = [*(name for name, _ in kind.key), kind.attempt, kind.token]
    proven = " AND ".join(f"{row}.{name} = ${place}" for place, name in enumerate(names, 1))
    named = f"noetl.{kind.table} AS {row} {joined}".rstrip()
    return f"SELECT {columns} FROM {named} WHERE {proven} AND {kind.held(row)}"  # noqa: S608


@cache
def claim(kind: Kind, within: int, returning: str = "") -> str:
    """Take free rows under the next attempt and a new token.

    The first `within` columns of the key are given, then seconds, a limit, and the holder where the kind has a column for it.
    """
    names = [name for name, _ in kind.key]
    given = [f"known.{name} = ${place}" for place, (name, _) in enumerate(kind.key[:within], 1)]
    seconds, limit, holder = (f"${within + place}" for place in (1, 2, 3))
    sets = [
        f"{kind.holder} = {holder}" if kind.holder else "",
        f"{kind.attempt} = known.{kind.attempt} + 1",
        f"{kind.token} = gen_random_uuid()",
        f"{kind.until} = {CLOCK} + make_interval(secs => {seconds}::double precision)",
        f"{kind.heartbeat} = {CLOCK}" if kind.heartbeat else "",
    ]
    return f"""
WITH free AS MATERIALIZED (
    SELECT {", ".join(f"known.{name}" for name in names)} FROM noetl.{kind.table} AS known
    WHERE {_all(*given, kind.free("known"))}
    ORDER BY {kind.first("known")} LIMIT {limit} FOR UPDATE SKIP LOCKED
)
UPDATE noetl.{kind.table} AS known SET {", ".join(filter(None, sets))}
FROM free WHERE {" AND ".join(f"known.{name} = free.{name}" for name in names)}
RETURNING {_list(f"known.{name}" for name in names)}, known.{kind.attempt} AS attempt,
    known.{kind.token}::text AS token{returning}
"""  # noqa: S608


@cache
def renew(kind: Kind, returning: str = "") -> str:
    """Make leases last longer that are held under their attempt and token and have not run out; never less long."""
    beats = f"{kind.heartbeat} = {CLOCK}, " if kind.heartbeat else ""
    if kind.locked_in is None:
        length = f"known.{kind.seconds}" if kind.seconds else "own.seconds"
        return f"""
UPDATE noetl.{kind.table} AS known SET {beats}{_longer(kind, length)}
FROM {_own(kind, () if kind.seconds else _SECONDS)}
WHERE {_proven(kind)} AND {_lasting(kind)}
RETURNING own.place{returning}
"""  # noqa: S608
    names = _list(f"known.{name}" for name, _ in kind.key)
    same = " AND ".join(f"known.{name} = held.{name}" for name, _ in kind.key)
    return f"""
WITH held AS MATERIALIZED (
    SELECT {names}, own.attempt, own.token, own.place
    FROM noetl.{kind.table} AS known
    JOIN {_own(kind, ())} ON {_same(kind)}
    WHERE known.{kind.attempt} = own.attempt AND known.{kind.token} = own.token
    ORDER BY {kind.locked_in} FOR UPDATE OF known
)
UPDATE noetl.{kind.table} AS known SET {beats}{_longer(kind, f"known.{kind.seconds}")}
FROM held WHERE {same} AND known.{kind.attempt} = held.attempt AND known.{kind.token} = held.token
  AND {_lasting(kind)}
RETURNING held.place{returning}
"""  # noqa: S608


@cache
def hold(kind: Kind) -> str:
    """Name the leases that last, and let nobody else take their rows before the transaction ends."""
    return f"""
SELECT own.place FROM noetl.{kind.table} AS known
JOIN {_own(kind, ())} ON {_same(kind)}
WHERE known.{kind.attempt} = own.attempt AND known.{kind.token} = own.token AND {_lasting(kind)}
ORDER BY {_list(f"known.{name}" for name, _ in kind.key)} FOR {kind.kept_by} OF known
"""  # noqa: S608


@cache
def holds(kind: Kind) -> str:
    """Name the leases that last."""
    return f"""
SELECT own.place FROM {_own(kind, ())} JOIN noetl.{kind.table} AS known ON {_same(kind)}
WHERE known.{kind.attempt} = own.attempt AND known.{kind.token} = own.token AND {_lasting(kind)}
"""  # noqa: S608


@cache
def gone(kind: Kind) -> str:
    """Name the leases whose rows have ended, wait, or are somebody else's; one that ran out alone is not gone."""
    return f"""
SELECT own.place FROM {_own(kind, ())}
WHERE NOT EXISTS (
    SELECT FROM noetl.{kind.table} AS known WHERE {_proven(kind)})
"""  # noqa: S608


@cache
def give_back(kind: Kind, given: Given = (), also: str = "") -> str:
    """Let go of leases, whether they last or not, as long as nobody else got them: rows are free again after `wait` seconds.

    `also` sets more columns, from what is `given` with each lease.
    """
    sets = [
        f"{kind.holder} = NULL" if kind.holder else "",
        f"{kind.token} = NULL",
        # A wait that is null leaves no time, so the row is free at once.
        f"{kind.until} = {CLOCK} + make_interval(secs => own.wait)",
        also,
    ]
    return f"""
UPDATE noetl.{kind.table} AS known SET {", ".join(filter(None, sets))}
FROM {_own(kind, (*_WAIT, *given))} WHERE {_proven(kind)}
RETURNING own.place
"""  # noqa: S608


def scopes(kind: Kind) -> str:
    """Find the organizations that have free rows."""
    return f"SELECT DISTINCT tenant_id, organization_id FROM noetl.{kind.table} WHERE {kind.free()}"  # noqa: S608


def _own(kind: Kind, given: Given) -> str:
    """Name the leases a statement is about, as they were given."""
    columns = (*kind.key, ("attempt", "integer"), ("token", "uuid"), *given)
    arrays = ", ".join(f"${place}::{type_}[]" for place, (_, type_) in enumerate(columns, 1))
    return f"unnest({arrays}) WITH ORDINALITY AS own ({_list(name for name, _ in columns)}, place)"


def _same(kind: Kind) -> str:
    return " AND ".join(f"known.{name} = own.{name}" for name, _ in kind.key)


def _proven(kind: Kind) -> str:
    return f"{_same(kind)} AND known.{kind.attempt} = own.attempt AND known.{kind.token} = own.token"


def _lasting(kind: Kind) -> str:
    return _all(kind.held("known") if kind.holds else "", kind.lasts("known"))


def _longer(kind: Kind, seconds: str) -> str:
    return f"{kind.until} = greatest(known.{kind.until}, {CLOCK} + make_interval(secs => {seconds}))"


def _all(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
