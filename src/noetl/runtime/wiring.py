"""Settings go in, connected parts come out. The only module that chooses adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from pydantic import Secret

from noetl.kernel.ledger.archive.retention import ensure_partitions
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.payload_references import PostgresReferences, RecordedErasures
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import Listener, listening
from noetl.kernel.payloads.consumers import for_consumer
from noetl.kernel.payloads.keys import FileTenantKeys
from noetl.kernel.payloads.objects.connect import Backend, Connection, open_object_store
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.payloads.tiers import durable_of
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.by_type import StoredByType, StoreLine
from noetl.kernel.projections.stores.port import PayloadPlace
from noetl.kernel.projections.stores.postgres.held_shards import Hold
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.projections.wakeups import Listen
from noetl.kernel.replay.replay import Replay
from noetl.kernel.replay.verify import Verifier
from noetl.model.stream import Scope
from noetl.runtime.extensions import load_folds, load_upcasters
from noetl.runtime.home import tell_new_home
from noetl.runtime.node_number import Ids
from noetl.runtime.payloads.tiers import with_tiers
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.postgres.schema_check import check_schema
from noetl.runtime.projections.stores import open_stores
from noetl.runtime.settings.declaration import Settings

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
    projections: StoredByType
    replay: Replay
    verifier: Verifier
    erasures: RecordedErasures

    def listen(self) -> AbstractAsyncContextManager[Listener]:
        """Open a listener that hears from PostgreSQL which shards grew."""
        return listening(self.database, "projector", POLL_SECONDS)

    def projector(
        self, hold: Hold | None = None, listen: Listen | None = None, line: StoreLine | None = None
    ) -> Projector:
        """Make a projector of all shards, or of those that a hold has, for one store, the default one unless named.

        Beside projecting into the default store it takes snapshots when due.
        """
        first = self.projections.lines[0]
        line = line or first
        return Projector(
            self.ledger,
            line.store if hold is None else line.store.held_by(hold),
            line.folds,
            self.upcasters,
            listen=listen or self.listen,
            on_batch=self.replay.keeper.on_batch if line is first else None,
            payloads=for_consumer(self.payloads, "projector"),
            erasures=self.erasures,
            rereads=self.history,
        )


@asynccontextmanager
async def open_runtime(settings: Settings, only: Role | None = None) -> AsyncIterator[Runtime]:
    """Connect everything the settings name, starting the embedded server if it is meant, for the time of the block.

    With `only`, the process has the rights of that database role and of no other, whoever it logs in as.
    """
    async with AsyncExitStack() as stack:
        database = await _open_database(settings, only, stack)
        if only is None:
            await ensure_partitions(database, settings.event_store.partitions_ahead_months)
        ledger = PostgresLedger(
            database,
            key_ttl=timedelta(days=settings.event_store.idempotency_ttl_days),
            listen=settings.event_store.distribution_backend != "none",
            checks=Checks(settings.event_store.check_every),
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
        projections = await open_stores(
            settings,
            database,
            folds,
            PayloadPlace(payloads.store_tier, payloads.address),
            stack,
            only,
        )
        first, *others = projections.lines
        erasures = RecordedErasures(database)
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
                erasures=erasures,
            ),
            verifier=Verifier(
                history,
                durable,
                first.store,
                first.folds,
                upcasters,
                database=database,
                others=others,
                erasures=erasures,
            ),
            erasures=erasures,
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


async def _open_database(settings: Settings, only: Role | None, stack: AsyncExitStack) -> Database:
    chosen = settings.database
    if chosen.url is None:
        server = EmbeddedServer(settings.runtime.home, tell_new_home)
        await asyncio.to_thread(server.acquire)
        stack.callback(server.release)
        url, owner_url = server.url("noetl_runtime"), server.url()
    else:
        url = chosen.url.get_secret_value()
        owner_url = None
    database = Database(
        url,
        as_roles=chosen.url is None,
        pool_min=chosen.pool_min,
        only=only,
        pool_max=chosen.pool_max,
        idle_in_transaction_seconds=chosen.idle_in_transaction_seconds,
    )
    stack.push_async_callback(database.close)
    await check_schema(database, owner_url)
    return database
