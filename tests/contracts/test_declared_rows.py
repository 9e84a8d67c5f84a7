"""Events change the rows the catalogue declares and no others: in PostgreSQL and in the folds, each declared change once at least."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.unit.model.sound import sound

from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.errors import EventInvalid
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.folds.open_work import OpenWork
from noetl.kernel.projections.folds.organization.fold import Pipelines
from noetl.kernel.projections.folds.organization.tables import KEYS
from noetl.model.catalogue import BY_NAME, ENDING, EVENT_TYPES
from noetl.model.catalogue.rows import LEASED, applied_by, types_changing
from noetl.model.event import Draft, Event
from noetl.model.event_type import EventType
from noetl.testing.contracts.open_work.story import whole_story as open_work_story
from noetl.testing.samples.drafts import PRODUCER
from noetl.testing.samples.executions import IDS, SCOPE, Driven, one, token
from noetl.testing.samples.pipelines import Piped

from .story_pipelines import what_seldom_happens, whole_story
from .work_tables import rows

OPEN_WORK = {
    "execution_head": ("execution_id",),
    "command": ("execution_id", "command_id"),
    "stage": ("execution_id", "stage_id"),
    "frame": ("execution_id", "frame_id"),
}
COLUMNS = {**OPEN_WORK, **KEYS}
SHOWN = " UNION ALL ".join(f"SELECT '{table}', to_jsonb(r)::text FROM noetl.{table} AS r" for table in COLUMNS)

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'noetl'::regnamespace AND relkind = 'r'"
KEEPING = re.compile("event_.*|stream|shard|idempotency_key|ledger_link").fullmatch

Rows = Mapping[tuple[str, str], Mapping[str, Any]]
"""Rows by table and key."""


def whole() -> Iterator[tuple[Draft, Transition]]:
    """Every event type, one event after another."""
    run, dag = Driven(), Piped()
    story = [*open_work_story(run), run.closed(), *whole_story(dag), *what_seldom_happens(dag)]
    for kind in sorted(ENDING):
        other = Driven()
        begun = other.requested(), other.issued("a/1/0"), other.opened(), other.dispatched(IDS.mint(), token())
        story += [*begun, other.ended(kind)]
    story += [one(_plain(kind, run.execution_id)) for kind in EVENT_TYPES if applied_by(kind) is None]
    for change in story:
        fences = change.fences
        for stream, drafts, version in change.appends:
            for number, draft in enumerate(drafts):
                yield draft, Transition((Append(stream, [draft], None if number else version),), fences)
                fences = ()


def _plain(kind: EventType, execution_id: int) -> Draft:
    """Make a sound event of a type that changes no row, in a stream of its own."""
    stream_id = f"execution/{execution_id}/plain/{kind.name}"
    return msgspec.structs.replace(sound(kind), event_id=IDS.mint(), execution_id=execution_id, stream_id=stream_id)


class Touched:
    """Tables by how an event type touched their rows."""

    def __init__(self) -> None:
        self.opens: set[str] = set()
        self.changes: set[str] = set()
        self.ends: set[str] = set()
        self.moves_lease = False

    def add(self, before: Rows, after: Rows) -> None:
        self.opens |= {table for table, _ in after.keys() - before.keys()}
        self.ends |= {table for table, _ in before.keys() - after.keys()}
        for name in before.keys() & after.keys():
            if before[name] != after[name]:
                self.changes.add(name[0])
                self.moves_lease |= name[0] in LEASED and _lease(before[name]) != _lease(after[name])

    def as_declared(self) -> tuple[list[str], ...]:
        return tuple(sorted(tables) for tables in (self.opens, self.changes, self.ends))


def _lease(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["attempt"], row["lease_token"], row["status"]


def check(touched: Mapping[str, Touched]) -> None:
    declared = {kind.name: _declared(kind) for kind in EVENT_TYPES}
    assert {name: found.as_declared() for name, found in touched.items()} == declared
    moving = {name for table in LEASED for name in types_changing(table)}
    kept = {name for name in moving if not touched[name].moves_lease}
    assert kept == {kind.name for kind in EVENT_TYPES if kind.keeps_lease}


def _declared(kind: EventType) -> tuple[list[str], ...]:
    if applied_by(kind) is None:  # what is written beside the append is not written here
        return [], [], []
    return tuple(sorted(tables) for tables in (kind.opens, kind.changes, kind.ends))


def test_the_folds_touch_what_is_declared() -> None:
    """INV-152."""
    touched: dict[str, Touched] = defaultdict(Touched)
    works: dict[int, OpenWork] = defaultdict(OpenWork)
    versions: dict[str, int] = defaultdict(int)
    pipelines = Pipelines()
    for position, (draft, _) in enumerate(whole(), 1):
        versions[draft.stream_id] += 1
        event = Event(
            **{name: getattr(draft, name) for name in draft.__struct_fields__},
            stream_version=versions[draft.stream_id],
            shard=0,
            position=position,
            ingest_time=draft.event_time + timedelta(microseconds=position),
        )
        work = works[event.execution_id]
        before = _folded(work, pipelines)
        work.apply(event)
        pipelines.apply(event)
        touched[event.event_type].add(before, _folded(work, pipelines))
    check(touched)


def _folded(work: OpenWork, pipelines: Pipelines) -> Rows:
    tables = {**work.tables(), **pipelines.tables()}
    return {(table, key): deepcopy(row) for table, rows in tables.items() for key, row in rows.items()}


@pytest.mark.service
async def test_the_database_touches_what_is_declared(
    ledger: PostgresLedger, database: Database, owner_url: str
) -> None:
    """INV-152."""
    touched: dict[str, Touched] = defaultdict(Touched)
    others = await _others(owner_url)
    before = await _stored(database)
    for draft, change in whole():
        await ledger.transact(change)
        after = await _stored(database)
        touched[draft.event_type].add(before, after)
        before = after
    check(touched)
    assert await _others(owner_url) == others


@pytest.mark.service
async def test_a_catalog_touches_what_is_declared(ledger: PostgresLedger, database: Database) -> None:
    catalog = Catalog(PostgresEntries(database, ledger), MemoryPayloadStore(), IDS.mint, PRODUCER)
    playbook = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: tests/a}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
    changes = {
        "catalog.registered": lambda: catalog.register(SCOPE, playbook),
        "catalog.removed": lambda: catalog.set_removed(SCOPE, "tests/a", 1, removed=True),
        "catalog.restored": lambda: catalog.set_removed(SCOPE, "tests/a", 1, removed=False),
    }
    assert {*changes} == {kind.name for kind in EVENT_TYPES if "catalog" in kind.tables}
    before: Rows = {}
    for name, change in changes.items():
        await change()
        found = {("catalog", row[0]): {"row": row} for row in await rows(database, "catalog", "catalog_id, removed")}
        touched = Touched()
        touched.add(before, found)
        kind = BY_NAME[name]
        assert touched.as_declared() == ([*kind.opens], [*kind.changes], [*kind.ends]), name
        before = found


@pytest.mark.service
async def test_nobody_takes_a_type_that_is_not_declared(ledger: PostgresLedger) -> None:
    """INV-148."""
    run = Driven()
    draft = run.requested().appends[0].drafts[0]
    stray = msgspec.structs.replace(draft, event_type="execution.guessed", schema_name="noetl.execution.guessed")
    for take in (ledger.append, MemoryLedger().append):
        with pytest.raises(EventInvalid, match="unknown event type"):
            await take(stray.stream, [stray])
    with pytest.raises(EventInvalid, match="unknown event type"):
        await ledger.transact(one(stray))
    assert [event async for event in ledger.read(stray.stream)] == []


async def _others(owner_url: str) -> dict[str, int]:
    """Count the rows of all tables that neither follow from events nor keep them."""
    connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    try:
        tables = [row[0] for row in await connection.fetch(TABLES) if row[0] not in COLUMNS and not KEEPING(row[0])]
        return {table: await connection.fetchval(f"SELECT count(*) FROM noetl.{table}") for table in tables}
    finally:
        await connection.close()


async def _stored(database: Database) -> Rows:
    async with database.transaction(SCOPE) as connection:
        found = [(table, json.loads(text)) for table, text in await connection.fetch(SHOWN)]
    return {(table, "|".join(str(row[name]) for name in COLUMNS[table])): row for table, row in found}
