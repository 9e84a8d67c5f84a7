"""The statements of the projection store in PostgreSQL, written from the one list of columns."""

from __future__ import annotations

from typing import Final

from noetl.kernel.projections.stores.rows import COLUMNS

_TYPES: Final = dict(
    zip(
        COLUMNS,
        ("text", "text", "text", "text", "bigint", "smallint", "bigint", "bigint", "integer", "text", "text", "text"),
        strict=True,
    )
)
_KEY: Final = COLUMNS[:4]


def _names(columns: tuple[str, ...], prefix: str = "") -> str:
    return ", ".join(prefix + name for name in columns)


def _arrays(types: dict[str, str]) -> str:
    return ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types.values(), 1))


def _same(key: tuple[str, ...], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in key)


def _updates(columns: tuple[str, ...], key: tuple[str, ...]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)


def _differs(columns: tuple[str, ...], key: tuple[str, ...], one: str, other: str) -> str:
    # json has no equality; the stored text is canonical, so its text has.
    compared = [f"{name}::text" if name == "state" else name for name in columns if name not in key]
    return f"({_names(tuple(compared), one + '.')}) IS DISTINCT FROM ({_names(tuple(compared), other + '.')})"


SELECTED: Final = _names(COLUMNS)

LOCK: Final = "SELECT position, folds FROM noetl.projection_checkpoint WHERE shard = $1 FOR UPDATE"

MOVE: Final = (
    "UPDATE noetl.projection_checkpoint SET position = $2, folds = coalesce($3::json, folds), failure = NULL, "
    "updated_at = clock_timestamp() WHERE shard = $1"
)

LOAD: Final = (
    f"SELECT {_names(COLUMNS, 'p.')} FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) "  # noqa: S608
    f"AS k ({_names(_KEY)}) JOIN noetl.projection AS p ON {_same(_KEY, 'p', 'k')}"
)

# A row belongs to one shard: where two shards open the same row at once, the second must see the first and refuse.
SAVE: Final = (
    f"INSERT INTO noetl.projection ({SELECTED}) SELECT {_names(COLUMNS[:-1])}, state::json "  # noqa: S608
    f"FROM unnest({_arrays(_TYPES)}) AS given ({SELECTED}) "
    f"ON CONFLICT ({_names(_KEY)}) DO UPDATE SET {_updates(COLUMNS, _KEY)}, updated_at = clock_timestamp() "
    "WHERE projection.shard = excluded.shard"
)

GIVEN_ROW: Final = "given_row"
"""A table of a session that rows are copied into, since tables with row-level security take no copies themselves."""

_NEW_ROWS: Final = f"SELECT {SELECTED} FROM noetl.projection WITH NO DATA"  # noqa: S608
GIVEN: Final = f"CREATE TEMP TABLE IF NOT EXISTS {GIVEN_ROW} ON COMMIT DELETE ROWS AS {_NEW_ROWS}"
INSERT_GIVEN: Final = f"INSERT INTO noetl.projection ({SELECTED}) SELECT {SELECTED} FROM {GIVEN_ROW}"  # noqa: S608

# Where the place is known, its row is not even locked: a projector that stands still must not hold up the first batch of others.
PLACE: Final = """
    INSERT INTO noetl.payload_place (store_tier, address) SELECT $1, $2
    WHERE NOT EXISTS (SELECT FROM noetl.payload_place WHERE store_tier = $1 AND address = $2)
    ON CONFLICT (is_only) DO UPDATE SET store_tier = excluded.store_tier, address = excluded.address"""

STAGE: Final = f"CREATE TEMP TABLE rebuilt_row ON COMMIT DROP AS {_NEW_ROWS}"

STAGED: Final = "ANALYZE rebuilt_row"

COMPARE: Final = f"""
    SELECT count(old.row_id) AS before, count(new.row_id) AS after,
           count(*) FILTER (WHERE old.row_id IS NOT NULL AND new.row_id IS NOT NULL
                              AND {_differs(COLUMNS, _KEY, "old", "new")}) AS changed,
           count(*) FILTER (WHERE old.row_id IS NULL) AS added, count(*) FILTER (WHERE new.row_id IS NULL) AS removed
    FROM (SELECT * FROM noetl.projection WHERE shard = $1) AS old
    FULL JOIN rebuilt_row AS new ON {_same(_KEY, "old", "new")}"""  # noqa: S608

ELSEWHERE: Final = (
    "SELECT p.projection, p.row_id, p.shard FROM rebuilt_row AS new "  # noqa: S608
    f"JOIN noetl.projection AS p ON {_same(_KEY, 'p', 'new')} WHERE p.shard <> $1 LIMIT 1"
)

REMOVE: Final = (
    "DELETE FROM noetl.projection AS p WHERE p.shard = $1 "  # noqa: S608
    f"AND NOT EXISTS (SELECT FROM rebuilt_row AS new WHERE {_same(_KEY, 'p', 'new')})"
)

# Rows that are as they should be are left alone: a rebuild of a sound shard writes nothing.
REPLACE: Final = (
    f"INSERT INTO noetl.projection ({SELECTED}) SELECT {SELECTED} FROM rebuilt_row "  # noqa: S608
    f"ON CONFLICT ({_names(_KEY)}) DO UPDATE SET {_updates(COLUMNS, _KEY)}, updated_at = clock_timestamp() "
    f"WHERE {_differs(COLUMNS, _KEY, 'projection', 'excluded')}"
)

FAILURE: Final = "SELECT failure FROM noetl.projection_checkpoint WHERE shard = $1 AND position = $2 FOR UPDATE"
SET_FAILURE: Final = "UPDATE noetl.projection_checkpoint SET failure = $2::json WHERE shard = $1"

SHARDS: Final = """
    SELECT c.shard, c.position, c.updated_at, c.failure, coalesce(p.rows, 0) AS rows
    FROM noetl.projection_checkpoint AS c
    LEFT JOIN (SELECT shard, count(*) AS rows FROM noetl.projection GROUP BY shard) AS p USING (shard) ORDER BY c.shard"""

BROKEN: Final = """
    SELECT tenant_id, organization_id, stream_id, shard, position, event_id, sha256, code, message, since
    FROM noetl.broken_stream WHERE $1::smallint IS NULL OR shard = $1 ORDER BY shard, position, stream_id"""

SET_BROKEN: Final = """
    INSERT INTO noetl.broken_stream AS known (tenant_id, organization_id, stream_id, shard, position, event_id, sha256, code, message)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tenant_id, organization_id, stream_id) DO UPDATE SET shard = excluded.shard, position = excluded.position,
        event_id = excluded.event_id, sha256 = excluded.sha256, code = excluded.code, message = excluded.message,
        since = CASE WHEN known.position = excluded.position THEN known.since ELSE excluded.since END"""

HOLD_EVENT: Final = """
    INSERT INTO noetl.held_event (tenant_id, organization_id, stream_id, shard, position, event)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"""

HELD_EVENTS: Final = """
    SELECT position, event FROM noetl.held_event
    WHERE shard = $1 AND tenant_id = $2 AND organization_id = $3 AND stream_id = $4 AND position >= $5
    ORDER BY position LIMIT $6"""

MENDED: Final = "DELETE FROM noetl.broken_stream WHERE tenant_id = $1 AND organization_id = $2 AND stream_id = $3"
LET_GO: Final = (
    "DELETE FROM noetl.held_event AS h WHERE h.shard = $1 AND NOT EXISTS (SELECT FROM noetl.broken_stream AS b "
    "WHERE (b.tenant_id, b.organization_id, b.stream_id) = (h.tenant_id, h.organization_id, h.stream_id) "
    "AND b.position <= h.position)"
)
FORGET_ROWS: Final = "DELETE FROM noetl.projection WHERE shard = $1 AND tenant_id = $2 AND organization_id = $3 AND first_position = ANY ($4)"
FORGET_BROKEN: Final = "DELETE FROM noetl.broken_stream WHERE shard = $1"

SCOPES: Final = "SELECT DISTINCT tenant_id, organization_id FROM noetl.projection"

CHECKPOINTS: Final = "SELECT position FROM noetl.projection_checkpoint ORDER BY shard"

SAVE_SNAPSHOT: Final = """
    INSERT INTO noetl.snapshot (tenant_id, organization_id, aggregate_type, aggregate_id, version, fold_versions,
                                upcaster_digest, payload_root, encryption_context, checksum, payload_ref, payload_sha256)
    VALUES ($1, $2, $3, $4, $5, $6::json, $7, $8, $9, $10, $11::json, $12)
    ON CONFLICT DO NOTHING"""

LOAD_SNAPSHOTS: Final = """
    SELECT version, fold_versions, upcaster_digest, payload_root, encryption_context, checksum, payload_ref, created_at
    FROM noetl.snapshot WHERE aggregate_type = $1 AND aggregate_id = $2 AND version <= $3 ORDER BY version DESC"""

PRUNE_SNAPSHOTS: Final = """
DELETE FROM noetl.snapshot
WHERE tenant_id = $1 AND organization_id = $2 AND aggregate_type = $3 AND aggregate_id = $4 AND version < (
    SELECT min(newest.version) FROM (
        SELECT version FROM noetl.snapshot
        WHERE tenant_id = $1 AND organization_id = $2 AND aggregate_type = $3 AND aggregate_id = $4
        ORDER BY version DESC LIMIT $5
    ) AS newest
)
"""
