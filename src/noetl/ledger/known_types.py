"""Connections that ask the server only once per process what its built-in types are, arrays of them above all.

The driver asks on every new connection, with a query that takes longer than most of ours. What a built-in type is does
not change and is the same on all servers; types of the schema are asked for on each connection as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import asyncpg

_FIRST_OF_OTHERS: Final = 16384
"""Numbers below this one are given to types when PostgreSQL itself is made."""

_known: dict[frozenset[int], list[asyncpg.Record]] = {}


class _Nothing(NamedTuple):
    """Stands for the statement that was not needed; one with a name leaves the caller's own statement alone."""

    name: str = "known"


class KnowingConnection(asyncpg.Connection):
    """A connection of the driver that remembers built-in types for all others."""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        wanted = frozenset(typeoids)
        if (found := _known.get(wanted)) is not None:
            return found, _Nothing()
        types, statement = await super()._introspect_types(wanted, timeout)  # type: ignore[misc]  # the stubs lack it
        if all(one["oid"] < _FIRST_OF_OTHERS for one in types):
            _known[wanted] = types
        return types, statement
