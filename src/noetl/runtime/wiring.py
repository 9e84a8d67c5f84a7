"""Settings go in, connected parts come out. The only module that chooses adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
from pydantic import Secret

from noetl.errors import Unsupported
from noetl.ledger.archive.retention import ensure_partitions
from noetl.ledger.database import Database
from noetl.ledger.history import History
from noetl.ledger.notifier import Listener, listening
from noetl.ledger.postgres import PostgresLedger
from noetl.ledger.references import PostgresReferences
from noetl.model.stream import Scope
from noetl.payloads.chain import durable_of
from noetl.payloads.connect import Backend, Connection, open_object_store
from noetl.payloads.consumers import for_consumer
from noetl.payloads.keys import FileTenantKeys
from noetl.payloads.port import PayloadStore
from noetl.project.folds.registry import FoldRegistry
from noetl.project.holding import Hold
from noetl.project.postgres import PostgresProjectionStore
from noetl.project.projector import Projector
from noetl.project.upcast import Upcasters
from noetl.project.waking import Listen
from noetl.replay.replay import Replay
from noetl.replay.verify import Verifier
from noetl.runtime import migrate
from noetl.runtime.embedded import EmbeddedServer
from noetl.runtime.extensions import load_folds, load_upcasters
from noetl.runtime.fabric import with_tiers
from noetl.runtime.node_number import Ids
from noetl.runtime.settings import Settings

POLL_SECONDS = 1.0
"""How often a projector looks by itself, in case a notification was lost."""


@dataclass(frozen=True)
class Runtime:
    """The connected parts of one process."""

    settings: Settings
    scope: Scope
    database: Database
    ledger: PostgresLedger
    history: History
    payloads: PayloadStore
    references: PostgresReferences
    ids: Ids
    folds: FoldRegistry
    upcasters: Upcasters
    projections: PostgresProjectionStore
    replay: Replay
    verifier: Verifier

    def listen(self) -> AbstractAsyncContextManager[Listener]:
        """Open a listener that hears from PostgreSQL which shards grew."""
        return listening(self.database, "projector", POLL_SECONDS)

    def projector(self, hold: Hold | None = None, listen: Listen | None = None) -> Projector:
        """Make a projector of all shards, or of those that a hold has, which also takes snapshots when due."""
        return Projector(
            self.ledger,
            self.projections if hold is None else self.projections.held_by(hold),
            self.folds,
            self.upcasters,
            listen=listen or self.listen,
            on_batch=self.replay.keeper.on_batch,
        )


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """Connect everything the settings name, starting the embedded server if it is meant, for the time of the block."""
    async with AsyncExitStack() as stack:
        database = await _open_database(settings, stack)
        await ensure_partitions(database, settings.event_store.partitions_ahead_months)
        ledger = PostgresLedger(
            database,
            key_ttl=timedelta(days=settings.event_store.idempotency_ttl_days),
            listen=settings.event_store.distribution_backend != "none",
        )
        stack.push_async_callback(ledger.close)
        ids = Ids(database)
        await ids.open()
        stack.push_async_callback(ids.close)
        payloads = open_payloads(settings)
        durable = durable_of(payloads)
        history = History(database, ledger, durable)
        folds = load_folds(settings.projections.business_objects)
        upcasters = load_upcasters(settings.projections.upcasters)
        projections = PostgresProjectionStore(
            database, lambda scope, ref: (payloads.store_tier, payloads.physical_uri(scope, ref))
        )
        yield Runtime(
            settings=settings,
            scope=Scope(settings.runtime.tenant_id, settings.runtime.organization_id),
            database=database,
            ledger=ledger,
            history=history,
            payloads=payloads,
            references=PostgresReferences(database),
            ids=ids,
            folds=folds,
            upcasters=upcasters,
            projections=projections,
            replay=Replay(
                history,
                for_consumer(payloads, "replay"),
                projections,
                folds,
                upcasters,
                settings.event_store.replay.snapshot_interval_events,
                database=database,
            ),
            verifier=Verifier(history, durable, projections, folds, upcasters, database=database),
        )


_BACKENDS: dict[str, Backend] = {"azure-blob": "azure", "seaweedfs": "minio"}


def open_payloads(settings: Settings) -> PayloadStore:
    """Open the payload store the settings name, with its tiers before it; nothing is contacted yet."""
    chosen, place = settings.payload_store, settings.payload_store.connection
    backend: Backend = _BACKENDS.get(chosen.backend, chosen.backend)  # type: ignore[arg-type]
    connection = Connection(
        backend=backend,
        path=settings.payload_directory,
        bucket=place.bucket,
        prefix=place.prefix or "",
        endpoint=_shown(place.endpoint),
        region=place.region,
        access_key=place.access_key,
        secret_key=_shown(place.secret_key),
        allow_http=place.allow_http,
    )
    keys = FileTenantKeys(settings.key_directory) if chosen.encryption_at_rest else None
    durable = open_object_store(
        connection,
        compress=settings.serialization.compression == "zstd",
        keys=keys,
        grace=timedelta(hours=chosen.gc.grace_hours),
    )
    return durable if backend == "memory" else with_tiers(settings, durable, keys)


def _shown(secret: Secret[str] | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


async def _open_database(settings: Settings, stack: AsyncExitStack) -> Database:
    chosen = settings.database
    if chosen.url is None:
        server = EmbeddedServer(settings.runtime.home)
        await asyncio.to_thread(server.acquire)
        stack.callback(server.release)
        url, owner_url = server.url("noetl_runtime"), server.url()
    else:
        url = chosen.url.get_secret_value()
        owner_url = None
    database = Database(
        url,
        as_roles=chosen.url is None,
        pool_max=chosen.pool_max,
        idle_in_transaction_seconds=chosen.idle_in_transaction_seconds,
    )
    stack.push_async_callback(database.close)
    await _check_schema(database, owner_url)
    return database


async def _check_schema(database: Database, owner_url: str | None) -> None:
    """Refuse a schema this program was not written for; the embedded database is brought up to date by itself."""
    wanted = migrate.head()
    found = await _revision(database)
    if (found or "") > wanted:
        raise Unsupported(
            f"the database schema is at revision {found}, newer than this program's {wanted}",
            hint="use the newer version of NoETL that migrated it",
        )
    if found != wanted:
        if owner_url is None:
            raise Unsupported(
                f"the database schema is at revision {found or 'none'}, and {wanted} is needed",
                hint="run `noetl db migrate`",
            )
        await asyncio.to_thread(migrate.upgrade, owner_url)


async def _revision(database: Database) -> str | None:
    # Before the first migration the roles do not exist yet, so the very login fails.
    missing = (
        asyncpg.UndefinedTableError,
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidParameterValueError,
        asyncpg.UndefinedObjectError,
    )
    try:
        connection = await database.connect()
    except missing:
        return None
    try:
        return str(await connection.fetchval("SELECT version_num FROM public.schema_revision"))
    except missing:
        return None
    finally:
        await connection.close()
