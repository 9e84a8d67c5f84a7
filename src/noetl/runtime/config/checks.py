"""What must hold between settings that are each valid alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from noetl.runtime.config.problems import Path
from noetl.runtime.config.schema import variable
from noetl.runtime.settings.declaration import Settings


@dataclass(frozen=True, slots=True)
class Clash:
    """Settings that do not go together: the one to mend, the ones that make it so, and what to do."""

    path: Path
    because: tuple[Path, ...]
    message: str
    hint: str


def clashes(settings: Settings) -> Iterator[Clash]:
    """Find every clash between settings."""
    yield from _database(settings)
    yield from _payload_store(settings)
    yield from _stream(settings)
    yield from _projection_stores(settings)
    keep, archive = ("event_store", "retention", "keep_months"), ("event_store", "retention", "keep_archive_months")
    retention = settings.event_store.retention
    if retention.keep_archive_months is not None:
        if retention.keep_months is None:
            hint = "set keep_months too, or remove keep_archive_months"
            yield Clash(archive, (keep,), "has no effect, because nothing is archived without keep_months", hint)
        elif retention.keep_archive_months < retention.keep_months:
            message = f"must be at least keep_months, which is {retention.keep_months}"
            yield Clash(archive, (keep,), message, "both count from the event")


def _database(settings: Settings) -> Iterator[Clash]:
    low, high = ("database", "pool_min"), ("database", "pool_max")
    url, owner = ("database", "url"), ("database", "owner_url")
    database = settings.database
    if database.pool_min > database.pool_max:
        message = f"must be at most pool_max, which is {database.pool_max}"
        yield Clash(low, (high,), message, "lower pool_min or raise pool_max")
    if database.owner_url is not None and database.url is None:
        hint = "set NOETL_DATABASE_URL to the runtime role's connection, or remove the owner's"
        yield Clash(owner, (url,), "is given, but database.url is not", hint)


def _stream(settings: Settings) -> Iterator[Clash]:
    store, above = settings.event_store, ("event_store", "connection")
    way, backend, url = ("event_store", "write_path"), ("event_store", "distribution_backend"), (*above, "url")
    fsync, always = (*above, "require_fsync"), (*above, "sync_interval_always")
    nats = store.distribution_backend == "nats-jetstream"
    if store.write_path != "ledger" and not nats:
        hint = (
            "set distribution_backend: nats-jetstream and connection.url, start `noetl dev --nats`, which brings a server, "
            "or leave write_path at ledger"
        )
        yield Clash(way, (backend,), f"{store.write_path} needs a stream outside PostgreSQL", hint)
    if nats and (
        store.connection.url is None or not store.connection.url.get_secret_value().startswith(("nats", "tls"))
    ):
        yield Clash(url, (backend,), "must be that of a NATS server", "such as nats://nats:4222")
    if store.write_path == "stream" and store.connection.require_fsync and not store.connection.sync_interval_always:
        hint = "run NATS with `sync_interval: always` and set sync_interval_always: true, or do not require it"
        yield Clash(
            fsync, (way, always), "is set, and nobody says that NATS syncs a write before it acknowledges it", hint
        )


def _projection_stores(settings: Settings) -> Iterator[Clash]:
    url, own = ("database", "url"), settings.database.url
    taken = {} if own is None else {own.get_secret_value(): "database.url"}
    for name, store in settings.projection_stores.items():
        above = ("projection_stores", name)
        dsn, given = (*above, "connection", "dsn"), store.connection.dsn
        if name == "default":
            if given is not None and given.get_secret_value() not in taken:
                hint = "leave it out, and name a store of another name for what shall be elsewhere"
                yield Clash(dsn, (url,), "must be database.url: the default store is the ledger's own database", hint)
        elif given is None:
            if store.projections:
                hint = "prepare a database with `noetl db migrate --store` and name it"
                yield Clash(dsn, ((*above, "projections"),), "is needed by a store that has projections", hint)
        elif given.get_secret_value() in taken:
            message = f"is that of {taken[given.get_secret_value()]}: each store has a database of its own"
            yield Clash(dsn, (url,), message, "name another database")
        else:
            taken[given.get_secret_value()] = f"projection store {name}"


def _payload_store(settings: Settings) -> Iterator[Clash]:
    store = settings.payload_store
    connection, above = store.connection, ("payload_store", "connection")
    backend = ("payload_store", "backend")
    bucket, endpoint, allow = (*above, "bucket"), (*above, "endpoint"), (*above, "allow_http")
    access, secret = (*above, "access_key"), (*above, "secret_key")
    if store.backend not in ("local", "memory") and connection.bucket is None:
        hint = f"name the bucket, such as {variable(bucket)}=noetl-payloads"
        yield Clash(bucket, (backend,), f"is needed by the {store.backend} backend", hint)
    if store.backend == "seaweedfs" and connection.endpoint is None:
        yield Clash(endpoint, (backend,), "is needed by the seaweedfs backend", "such as https://seaweedfs:8333")
    if connection.endpoint and connection.endpoint.get_secret_value().startswith("http:") and not connection.allow_http:
        yield Clash(endpoint, (allow,), "is not encrypted", "use https://, or set allow_http: true")
    if connection.access_key is not None and connection.secret_key is None:
        yield Clash(secret, (access,), "is needed with access_key", "set both, or neither")
    if connection.secret_key is not None and connection.access_key is None:
        yield Clash(access, (secret,), "is needed with secret_key", "set both, or neither")
