"""The rows of open work and of the catalog, compared with the events they follow from. Only reads.

Everything is looked at as it is at one moment. Only executions that have not ended are folded, one after another; that
ended ones have left no row is asked in one query.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from noetl.kernel.ledger.postgres.database import Connection, Database, bind, translated
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.open_work import WORK_TYPES, OpenWork, Table
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.report import Difference
from noetl.model.canonical import canonical_json
from noetl.model.catalogue import ENDING
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope

SHOWN: Final = 10
_PAGE: Final = 1000
_IDS: Final = {"execution_head": "execution_id", "command": "command_id", "stage": "stage_id", "frame": "frame_id"}
_WHERE: Final = {
    "execution_head": "open_execution",
    "command": "open_command",
    "stage": "open_stage",
    "frame": "open_frame",
}
"""How a difference names a row: `stage` and `frame` are projections too."""
_JSON: Final = frozenset({"ctx", "frame_policy", "input_ref", "checkpoint", "near"})
# Heartbeats move the leases' times and are no events; the organization is the same on all rows.
_NOT_FOLDED: Final = frozenset({"tenant_id", "organization_id", "lease_until", "last_heartbeat"})

_ROWS: Final = " UNION ALL ".join(
    f"SELECT '{table}' AS name, execution_id, {column}::text AS id FROM noetl.{table}"  # noqa: S608
    for table, column in _IDS.items()
)
_ENDED: Final = """SELECT execution_id FROM noetl.known_event WHERE event_type = ANY ($2::text[])
    AND starts_with(stream_id, 'execution/') AND ($1::bigint IS NULL OR execution_id = $1)"""

# Both take all of one side at once: looking for the end of each row's execution would read long histories many times.
_LEFT: Final = f"""
SELECT name, execution_id, id FROM ({_ROWS}) AS r JOIN (SELECT DISTINCT * FROM ({_ENDED}) AS e) AS ended USING (execution_id)
ORDER BY execution_id, name, id LIMIT {SHOWN}
"""  # noqa: S608

_OPEN: Final = f"""
SELECT execution_id FROM ({_ROWS}) AS r WHERE $1::bigint IS NULL OR execution_id = $1
UNION
SELECT execution_id FROM noetl.known_event WHERE event_type = 'execution.requested' AND stream_version = 1
    AND meta ->> 'playbook_digest' IS NOT NULL AND ($1::bigint IS NULL OR execution_id = $1)
EXCEPT
{_ENDED} ORDER BY execution_id
"""  # noqa: S608

# Events that wait for the materializer come after those in the ledger.
_EVENTS: Final = f"""
SELECT {COLUMNS} FROM (
    SELECT false AS waits, e.* FROM noetl.event AS e UNION ALL SELECT true, p.* FROM noetl.pending_event AS p
) AS known
WHERE execution_id = $1 AND event_type = ANY ($2::text[]) AND starts_with(stream_id, 'execution/') ORDER BY waits, position
"""  # noqa: S608

# A version's content is proven by the digest of the payload its event refers to.
_CATALOG: Final = f"""
WITH moved AS (
    SELECT DISTINCT ON (catalog_id) catalog_id, event_type = 'catalog.removed' AS removed FROM noetl.known_event
    WHERE execution_id = $1 AND event_type IN ('catalog.removed', 'catalog.restored')
    ORDER BY catalog_id, stream_version DESC
), said AS (
    SELECT catalog_id COLLATE "C" AS catalog_id, meta ->> 'path' AS path, (meta ->> 'version')::integer AS version,
           meta ->> 'kind' AS kind, meta ->> 'digest' AS digest, payload_sha256 AS content_sha256,
           coalesce(removed, false) AS removed
    FROM noetl.known_event LEFT JOIN moved USING (catalog_id)
    WHERE execution_id = $1 AND event_type = 'catalog.registered'
), rows AS (
    SELECT catalog_id, path, version, kind, digest, encode(sha256(convert_to(content, 'UTF8')), 'hex') AS content_sha256,
           removed
    FROM noetl.catalog
)
SELECT catalog_id, to_json(said) AS expected, to_json(rows) AS found FROM said FULL JOIN rows USING (catalog_id)
WHERE to_jsonb(said) IS DISTINCT FROM to_jsonb(rows) ORDER BY catalog_id LIMIT {SHOWN}
"""  # noqa: S608


async def open_work_differences(
    database: Database, scope: Scope, execution_id: int | None, upcasters: Upcasters
) -> list[Difference]:
    """Compare an organization's, or an execution's, rows of open work with its events, and the catalog with its own."""
    async with _one_moment(database, scope) as connection:
        found = await _left(connection, execution_id)
        async for row in connection.cursor(_OPEN, execution_id, list(ENDING), prefetch=_PAGE):
            if len(found) >= SHOWN:
                break
            found += await _execution(connection, row["execution_id"], upcasters)
        if execution_id is None:
            found += await _catalog(connection, scope)
    return found


@asynccontextmanager
async def _one_moment(database: Database, scope: Scope) -> AsyncIterator[Connection]:
    pool = await database.pool()
    with translated():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await bind(connection, scope)
            yield connection


async def _left(connection: Connection, execution_id: int | None) -> list[Difference]:
    return [
        Difference(
            where=_WHERE[row["name"]],
            id=_name(row["execution_id"], row["name"], row["id"]),
            field="row",
            expected=None,
            found="a row, although its execution has ended",
        )
        for row in await connection.fetch(_LEFT, execution_id, list(ENDING))
    ]


async def _execution(connection: Connection, execution_id: int, upcasters: Upcasters) -> list[Difference]:
    """Fold one execution and compare its rows."""
    work = OpenWork()
    page: list[Any] = []
    async for row in connection.cursor(_EVENTS, execution_id, list(WORK_TYPES), prefetch=_PAGE):
        page.append(row)
        if len(page) == _PAGE:
            _apply(work, page, upcasters)
            page = []
    _apply(work, page, upcasters)
    found: list[Difference] = []
    for table, expected in work.tables().items():
        rows = await connection.fetch(f"SELECT * FROM noetl.{table} WHERE execution_id = $1", execution_id)  # noqa: S608
        stored = {str(row[_IDS[table]]): _plain(row) for row in rows}
        found += _differences(execution_id, table, expected, stored)
    return found[:SHOWN]


def _apply(work: OpenWork, page: list[Any], upcasters: Upcasters) -> None:
    for event in to_events(page):
        work.apply(upcasters.upcast(event))


def _differences(execution_id: int, table: str, expected: Table, stored: Table) -> Iterator[Difference]:
    for name in sorted(expected.keys() | stored.keys()):
        place = {"where": _WHERE[table], "id": _name(execution_id, table, name)}
        yield from _row_differences(place, expected.get(name), stored.get(name))


def _row_differences(place: dict[str, str], expected: Row | None, found: Row | None) -> Iterator[Difference]:
    if expected is None or found is None:
        yield Difference(**place, field="row", expected=expected, found=found)
        return
    # A column that only one side knows differs too, so that none is forgotten.
    for column in sorted(expected.keys() | found.keys()):
        if column not in expected or column not in found or not _same(expected[column], found[column]):
            yield Difference(**place, field=column, expected=expected.get(column), found=found.get(column))


async def _catalog(connection: Connection, scope: Scope) -> list[Difference]:
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    found: list[Difference] = []
    for row in await connection.fetch(_CATALOG, root):
        expected, stored = (None if row[side] is None else orjson.loads(row[side]) for side in ("expected", "found"))
        found += _row_differences({"where": "catalog", "id": row["catalog_id"]}, expected, stored)
    return found[:SHOWN]


def _plain(row: Any) -> Row:
    """Write a stored row the way the fold writes it."""
    return {name: _value(name, value) for name, value in row.items() if name not in _NOT_FOLDED}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, UUID) or (isinstance(value, int) and name.endswith("_id")):
        return str(value)
    return orjson.loads(value) if name in _JSON and value is not None else value


def _same(expected: Any, found: Any) -> bool:
    try:
        # By their canonical JSON: 1 and 1.0 are one number, while true is another value.
        return canonical_json(expected) == canonical_json(found)
    except (TypeError, ValueError):
        return False


def _name(execution_id: int, table: str, row_id: str) -> str:
    return row_id if table == "execution_head" else f"{execution_id}/{row_id}"
