"""The PFT workload as a bare script: the same tables, claims, requests and commits, and nothing around them.

Takes a database, the mock API and the sizes; gives the seconds it took once all totals are exact. It keeps no ledger,
takes no leases and survives no crash: that is what the playbook's time is compared with.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy
from examples.pft.records import DATA_TYPES, Totals, expected
from ruamel.yaml import YAML

from bench import pft_floor_sql as sql

PLAYBOOK = Path(__file__).parent.parent / "examples/pft/pft_s3.yaml"
EXECUTION = "floor"
TRIES = 6


@dataclass(frozen=True)
class Sizes:
    """How much there is to do and how much of it at once; each slot has so many lanes."""

    facilities: int = 10
    patients: int = 1000
    max_in_flight: int = 1
    row_concurrency: int = 1
    frame_rows: int = 50


@dataclass(frozen=True)
class Floor:
    """What a run came to."""

    seconds: float
    requests: int
    frames: int


class WrongTotals(Exception):
    """The tables do not hold what the API has."""


Save = Callable[[PoolConnectionProxy, asyncpg.Record, bytes], Awaitable[Any]]


async def run_floor(url: str, api_url: str, sizes: Sizes) -> Floor:
    """Run the whole workload and hold the tables against the exact totals."""
    wanted = expected(sizes.facilities, sizes.patients, "s3", sizes.frame_rows)
    tables = YAML(typ="safe").load(PLAYBOOK)["workflow"][0]["tool"][0]["command"]
    async with _opened(url, sizes) as (pool, session):
        began = time.perf_counter()
        async with pool.acquire() as connection:
            await connection.execute(tables)
        run = _Run(pool, session, api_url, sizes)
        for facility in range(1, sizes.facilities + 1):
            await run.facility(facility)
        await _validate(pool, run, wanted)
        return Floor(time.perf_counter() - began, run.requests, run.frames)


@asynccontextmanager
async def _opened(url: str, sizes: Sizes) -> AsyncIterator[tuple[asyncpg.Pool, aiohttp.ClientSession]]:
    lanes = sizes.max_in_flight * sizes.row_concurrency
    async with (
        asyncpg.create_pool(url, min_size=lanes, max_size=lanes) as pool,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=lanes),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=8),
        ) as session,
    ):
        yield pool, session


class _Run:
    def __init__(self, pool: asyncpg.Pool, session: aiohttp.ClientSession, api_url: str, sizes: Sizes) -> None:
        self._pool, self._session, self._api, self._sizes = pool, session, api_url, sizes
        self.requests = 0
        self.frames = 0

    async def facility(self, facility: int) -> None:
        """Fetch five kinds of data of each patient, then each assessment they name."""
        async with self._pool.acquire() as connection:
            await connection.execute(sql.SEED_PATIENTS, facility, self._sizes.patients)
            await connection.execute(sql.SEED_QUEUE, EXECUTION, facility)
        for data_type in DATA_TYPES:
            address = f"{self._api}/api/v1/patient/{data_type}?patientId={{}}"
            if data_type != "demographics":
                address += "&page=1&pageSize=1"
            claim = (sql.CLAIM_PATIENTS, EXECUTION, facility, data_type)
            await self._drain(claim, address, _saving(data_type))
        async with self._pool.acquire() as connection:
            await connection.execute(sql.EXPAND_MDS, facility)
        await self._drain((sql.CLAIM_MDS, facility), f"{self._api}/api/v1/pft/mds/details?assessmentId={{}}", _save_mds)

    async def _drain(self, claim: tuple[Any, ...], address: str, save: Save) -> None:
        async with asyncio.TaskGroup() as slots:
            for _ in range(self._sizes.max_in_flight):
                slots.create_task(self._slot(claim, address, save))

    async def _slot(self, claim: tuple[Any, ...], address: str, save: Save) -> None:
        """Claim frames until there are no rows left; each lane keeps its connection."""
        lanes = [await self._pool.acquire() for _ in range(self._sizes.row_concurrency)]
        try:
            while rows := await lanes[0].fetch(*claim, self._sizes.frame_rows):
                self.frames += 1
                waiting = iter(rows)
                await asyncio.gather(*(self._lane(each, waiting, address, save) for each in lanes))
        finally:
            for each in lanes:
                await self._pool.release(each)

    async def _lane(
        self, connection: PoolConnectionProxy, waiting: Iterator[asyncpg.Record], address: str, save: Save
    ) -> None:
        for row in waiting:
            await save(connection, row, await self._get(address.format(row[0])))

    async def _get(self, address: str) -> bytes:
        for attempt in range(1, TRIES + 1):
            self.requests += 1
            async with self._session.get(address) as response:
                if response.status == 200:
                    return await response.read()
            if attempt < TRIES:
                await asyncio.sleep(1.0)
        raise ConnectionError(f"{address} failed {TRIES} times")


def _saving(data_type: str) -> Save:
    statement = sql.SAVE_DEMOGRAPHICS if data_type == "demographics" else sql.save_page(data_type)
    is_paged = data_type != "demographics"

    async def save(connection: PoolConnectionProxy, row: asyncpg.Record, body: bytes) -> None:
        values = [row["patient_id"], row["facility_mapping_id"], EXECUTION, body.decode()]
        if is_paged:
            values.append(not orjson.loads(body)["paging"]["hasMore"])
        await connection.execute(statement, *values)

    return save


async def _save_mds(connection: PoolConnectionProxy, row: asyncpg.Record, body: bytes) -> None:
    payload = orjson.dumps(orjson.loads(body)["rows"][0]["payload"]).decode()
    await connection.execute(
        sql.SAVE_MDS, row["assessment_id"], row["pcc_patient_id"], row["facility_mapping_id"], payload
    )


async def _validate(pool: asyncpg.Pool, run: _Run, wanted: Totals) -> None:
    found = dict(await pool.fetchrow(sql.TOTALS) or {})
    by_facility = tuple(row["fetched"] for row in await pool.fetch(sql.MDS_BY_FACILITY))
    if found != wanted.as_workload() or by_facility != wanted.mds_by_facility or run.requests < wanted.requests:
        raise WrongTotals(f"expected {asdict(wanted)}, found {found}, {by_facility} and {run.requests} requests")


if __name__ == "__main__":
    import uvloop

    given = Sizes(*(int(number) for number in sys.argv[3:]))
    sys.stdout.write(json.dumps(asdict(uvloop.run(run_floor(sys.argv[1], sys.argv[2], given)))))
