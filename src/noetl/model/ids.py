"""Ids: a node number and a clock go in, 64-bit ids that only ever grow come out.

An id is 41 bits of milliseconds since 2024, 10 bits of node and 12 bits of sequence. Ids are minted before commit, so
they say when something was made, never in which order it was committed. In JSON they are strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Annotated, Final
from uuid import UUID, uuid5

from blake3 import blake3
from msgspec import Meta

from noetl.errors import ConfigError, InputError, Unavailable
from noetl.model.canonical import canonical_json

EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH_MS: Final = 1_704_067_200_000
NODE_BITS: Final = 10
SEQUENCE_BITS: Final = 12
MAX_NODE: Final = (1 << NODE_BITS) - 1
MAX_ID: Final = (1 << 63) - 1
MAX_AHEAD_MS: Final = 10_000
"""How far ids may run ahead of the clock: through bursts of over 4096 a millisecond, or a clock that was set back."""

ROOT_ID_LIMIT: Final = 1 << 40
"""Ids below belong to organizations. As times they lie in the first minutes of 2024, so they are never minted."""

ID_PATTERN: Final = "^[1-9][0-9]{0,18}$"
Id64 = Annotated[int, Meta(extra_json_schema={"pattern": ID_PATTERN})]
"""An id in a struct that callers of the API see: a number in code and decimal text in JSON, whose numbers are exact to 53
bits only."""

_TIME_SHIFT: Final = NODE_BITS + SEQUENCE_BITS
_SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
_FIRST_MS: Final = ROOT_ID_LIMIT >> _TIME_SHIFT
_LAST_MS: Final = MAX_ID >> _TIME_SHIFT
_MILLISECOND: Final = timedelta(milliseconds=1)
_DECIMAL: Final = re.compile(r"[1-9][0-9]{0,18}")
_NAMESPACE: Final = UUID("c9e88b59-5d05-56af-b7ee-dcbec5e24d1a")  # uuid5(NAMESPACE_URL, "noetl://")


class SnowflakeGenerator:
    """Mints ids that strictly grow, from any thread, whatever the clock does.

    No two live generators may share a node number: that, and nothing else, keeps their ids apart. A process that forks
    needs a new generator with another node.
    """

    def __init__(self, node: int, now_ms: Callable[[], int]) -> None:
        """Take the node number (0 to 1023) and a clock that gives Unix milliseconds."""
        if not 0 <= node <= MAX_NODE:
            raise ConfigError(f"node {node} is not between 0 and {MAX_NODE}")
        self._node_bits = node << SEQUENCE_BITS
        self._now_ms = now_ms
        self._lock = Lock()
        # A tick is a millisecond and its sequence in one number: counting on past 4095 borrows from the next one.
        self._last_tick = -1

    def mint(self) -> int:
        """Return a new id, larger than every earlier one of this generator."""
        return self._id(self._take(1))

    def mint_many(self, n: int) -> list[int]:
        """Return n new ids in growing order, none of them interleaved with another thread's."""
        if n < 0:
            raise ValueError(f"cannot mint {n} ids")
        first = self._take(n) if n else 0
        return [self._id(tick) for tick in range(first, first + n)]

    def _take(self, n: int) -> int:
        """Reserve n ticks and return the first; when refused, nothing is reserved."""
        with self._lock:
            now = self._now_ms() - EPOCH_MS
            if not _FIRST_MS <= now <= _LAST_MS - MAX_AHEAD_MS:
                raise ConfigError(
                    f"the clock says {now + EPOCH_MS} ms since 1970, and ids exist only from 2024 to 2093",
                    hint="set the clock of this machine",
                )
            first = max(now << SEQUENCE_BITS, self._last_tick + 1)
            last = first + n - 1
            ahead = (last >> SEQUENCE_BITS) - now
            if ahead > MAX_AHEAD_MS:
                raise Unavailable(
                    f"the next {n} ids would run {ahead} ms ahead of the clock, and at most {MAX_AHEAD_MS} ms are allowed",
                    hint="the clock was set back or too many ids were asked for at once; try again when it has caught up",
                )
            self._last_tick = last
            return first

    def _id(self, tick: int) -> int:
        return (tick >> SEQUENCE_BITS) << _TIME_SHIFT | self._node_bits | (tick & _SEQUENCE_MASK)


def snowflake_at(moment: datetime) -> int:
    """Return the lowest id of that millisecond; 0 before 2024, since every id is later."""
    if moment.tzinfo is None:
        raise InputError(f"{moment.isoformat()} has no time zone; write for example {moment.isoformat()}Z")
    milliseconds = max(0, (moment - EPOCH) // _MILLISECOND)
    if milliseconds > _LAST_MS:
        raise InputError(f"{moment.isoformat()} is later than any id can be (2093)")
    return milliseconds << _TIME_SHIFT


def snowflake_time(snowflake: int) -> datetime:
    """Return the time, to the millisecond, at which the id was minted."""
    if not 0 <= snowflake <= MAX_ID:
        raise InputError(f"{snowflake} is not an id: it must be between 0 and 2^63 - 1")
    return EPOCH + (snowflake >> _TIME_SHIFT) * _MILLISECOND


def parse_id(text: object) -> int:
    """Read an id from the decimal string that stands for it in JSON."""
    if not isinstance(text, str):
        raise InputError(f"an id is a string of digits, not {type(text).__name__}: JSON numbers lose its last digits")
    if not _DECIMAL.fullmatch(text) or int(text) > MAX_ID:
        raise InputError(f"{text[:40]!r} is not an id: it must be a decimal number from 1 to {MAX_ID}")
    return int(text)


def organization_root_id(tenant: str, organization: str) -> int:
    """Return the execution id, from 1 to 2^40 - 1, under which an organization's catalog registrations stand.

    It depends on both names alone. Two organizations may share it by chance; rows are always keyed by their names too.
    """
    digest = blake3(f"{tenant}\x1f{organization}".encode()).digest(length=8)
    return int.from_bytes(digest, "little") % (ROOT_ID_LIMIT - 1) + 1


def uuid5_of(*parts: str) -> UUID:
    """Return the UUIDv5 of the parts: of their canonical JSON array, so that no two lists of parts are confused."""
    return uuid5(_NAMESPACE, canonical_json(parts).decode())
