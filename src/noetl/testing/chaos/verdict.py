"""Counts what was acknowledged against what stands: nothing lost, nothing doubled, everything ended, everything proven."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import aiohttp
import asyncpg
import msgspec

from noetl.runtime.postgres.password import SUPERUSER
from noetl.testing.chaos.installation import Installation
from noetl.testing.chaos.load import FACT_TYPE, Acknowledged

END_SECONDS: Final = 240.0
"""How long executions may take to end once all is well again."""
SETTLE_SECONDS: Final = 120.0
VERIFY_SECONDS: Final = 300.0

_FACTS: Final = "SELECT (context->>'n')::bigint AS n FROM noetl.event WHERE event_type = $1"
_STARTS: Final = """
SELECT count(*) FROM noetl.execution WHERE execution_id <> ALL ($1::bigint[])
AND catalog_id IN (SELECT catalog_id FROM noetl.execution WHERE execution_id = ANY ($1::bigint[]))
"""
_POSITIONS: Final = """
SELECT shard FROM noetl.event GROUP BY shard HAVING count(*) <> max(position) OR min(position) <> 1
"""


class Verdict(msgspec.Struct):
    """What was found. `holds` says whether everything that was promised is true."""

    facts_acknowledged: int
    facts_lost: list[int]
    facts_doubled: list[int]
    executions_acknowledged: int
    executions_unended: list[int]
    executions_failed: dict[str, str]
    """Executions that ended otherwise than COMPLETED, with their error."""
    executions_unasked: int
    """Executions that stand besides those that were acknowledged; a start whose answer was lost may be one of them."""
    runs_acknowledged: int
    runs_unended: list[int]
    gaps: list[int]
    """Shards whose positions are not dense."""
    verify: int
    """How `noetl verify --all --payloads` ended."""
    verify_said: str
    heads: int
    """Signed heads that were held against the chain: none means that nothing of it was tried."""
    divergence: int | None
    """How `noetl stream divergence` ended, in the write path `shadow`."""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        wrong: tuple[object, ...] = (
            self.facts_lost, self.facts_doubled, self.executions_unended, self.executions_failed, self.executions_unasked,
            self.runs_unended, self.gaps, self.verify, self.divergence or 0,
        )  # fmt: skip
        return not any(wrong) and min(self.facts_acknowledged, self.executions_acknowledged, self.heads) > 0


async def judge(
    installation: Installation, http: aiohttp.ClientSession, acknowledged: Acknowledged, *, shadow: bool
) -> Verdict:
    """Wait until everything that was started has ended, then count."""
    ended = await _ended(installation.url, http, acknowledged)
    runs = await _runs_unended(installation.url, http, acknowledged)
    wanted = acknowledged.keyed_facts | acknowledged.plain_facts
    connection: asyncpg.Connection = await asyncpg.connect(installation.database.url(SUPERUSER))
    try:
        found = await _facts(connection, wanted)
        unasked = await connection.fetchval(_STARTS, list(acknowledged.executions.values()))
        gaps = [int(row["shard"]) for row in await connection.fetch(_POSITIONS)]
    finally:
        await connection.close()
    verified = await asyncio.to_thread(
        installation.noetl, "verify", "--all", "--payloads", "--json", seconds=VERIFY_SECONDS
    )
    divergence = None
    if shadow:
        divergence = (
            await asyncio.to_thread(installation.noetl, "stream", "divergence", seconds=VERIFY_SECONDS)
        ).returncode
    return Verdict(
        facts_acknowledged=len(wanted),
        facts_lost=sorted(wanted - found.keys()),
        facts_doubled=sorted(number for number, count in found.items() if count > 1),
        executions_acknowledged=len(acknowledged.executions),
        executions_unended=[one for one, end in ended.items() if end is None],
        executions_failed={str(one): end for one, end in ended.items() if end not in {None, "COMPLETED"} and end},
        executions_unasked=int(unasked),
        runs_acknowledged=len(acknowledged.runs),
        runs_unended=runs,
        gaps=gaps,
        verify=verified.returncode,
        verify_said=(verified.stdout + verified.stderr)[-2000:] if verified.returncode else "",
        heads=_heads(verified.stdout),
        divergence=divergence,
    )


def _heads(said: str) -> int:
    """Return how many heads `noetl verify --json` checked; none if it said nothing that can be read."""
    try:
        return int(msgspec.json.decode(said)["chain"]["heads"])
    except (msgspec.DecodeError, KeyError):
        return 0


async def _facts(connection: asyncpg.Connection, wanted: set[int]) -> Counter[int]:
    """Return how often each fact stands, once all that are wanted do or their time is over."""
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while True:
        found = Counter(int(row["n"]) for row in await connection.fetch(_FACTS, FACT_TYPE))
        if wanted <= found.keys() or asyncio.get_running_loop().time() > deadline:
            return found
        # What a stream acknowledged is written by the materializer, which may still be at it.
        await asyncio.sleep(1.0)


async def _ended(url: str, http: aiohttp.ClientSession, acknowledged: Acknowledged) -> dict[int, str | None]:
    """Return how each execution ended; None for one that did not."""
    deadline = asyncio.get_running_loop().time() + END_SECONDS
    found: dict[int, str | None] = {}
    for execution_id in acknowledged.executions.values():
        found[execution_id] = None
        while found[execution_id] is None and asyncio.get_running_loop().time() < deadline:
            state = await _read(http, f"{url}/api/executions/{execution_id}?wait=5")
            if state is not None and state["status"] in {"COMPLETED", "FAILED", "CANCELLED"}:
                error = state.get("error")
                found[execution_id] = state["status"] if not error else f"{state['status']}: {error}"
    return found


async def _runs_unended(url: str, http: aiohttp.ClientSession, acknowledged: Acknowledged) -> list[int]:
    deadline = asyncio.get_running_loop().time() + END_SECONDS
    unended = []
    for run in acknowledged.runs:
        while True:
            state = await _read(http, f"{url}/api/dags/chaos/runs/{run}?wait=5")
            if state is not None and state["status"] == "completed":
                break
            if asyncio.get_running_loop().time() > deadline or (state is not None and state["status"] != "open"):
                unended.append(run)
                break
    return unended


async def _read(http: aiohttp.ClientSession, url: str) -> Any:
    try:
        async with http.get(url) as answer:
            if answer.status == 200:
                return await answer.json()
    except (aiohttp.ClientError, TimeoutError, OSError):
        pass
    await asyncio.sleep(0.5)
    return None
