"""The settings of the stores: ledger, payloads, projections, and how values become bytes in them.

Declarations only; `noetl.runtime.settings.declaration` puts them together with the others.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.kernel.ledger.claim_checks import CHECK_EVERY
from noetl.model.event import INLINE_LIMIT
from noetl.runtime.settings.signed_heads import Heads
from noetl.runtime.settings.types import (
    Amount,
    Count,
    HttpUrl,
    Location,
    Name,
    Planned,
    PostgresUrl,
    SecretText,
    Section,
    StreamUrl,
    Text,
)


class StreamConnection(Section):
    """Where the distribution stream is."""

    url: StreamUrl | None = Field(default=None, description="Address of the stream's server; null uses `database.url`.")
    stream_prefix: Name = Field(
        default="noetl",
        description="First part of every subject; the streams are named after it, `<prefix>_events` and `<prefix>_writes`, with "
        "dashes for dots.",
    )
    credentials_file: Location | None = Field(default=None, description="Credentials file of a NATS user.")
    replicas: Count = Field(default=1, description="Copies of each stream that NATS keeps.")
    max_age_hours: Count = Field(
        default=72, description="Hours for which mirrored events stay in the stream; the ledger keeps them anyway."
    )
    require_fsync: bool = Field(
        default=False,
        description="Refuse the write path `stream` unless `sync_interval_always` says that NATS syncs every write.",
    )
    sync_interval_always: bool = Field(
        default=False, description="The operator's word that the NATS server runs with `sync_interval: always`."
    )


class Replay(Section):
    """How replay is kept quick and proven right."""

    snapshot_interval_events: Count = Field(default=10_000, description="Events of an execution between two snapshots.")
    checksum_algorithm: Literal["blake3"] = Field(default="blake3", description="Checksum of folded state.")


class Retention(Section):
    """How long history is kept."""

    keep_months: Count | None = Field(
        default=None,
        description="Months of events kept in the database before they are archived; null keeps them forever.",
    )
    keep_archive_months: Count | None = Field(
        default=None, description="Months of events kept in archives, counted from the event; null keeps them forever."
    )


class EventStore(Section):
    """The ledger and how its events are distributed."""

    canonical_backend: Literal["postgres"] = Field(default="postgres", description="Store of the append-only ledger.")
    distribution_backend: Annotated[
        Literal["none", "postgres", "nats-jetstream"],
        Planned("kafka", "google-pubsub", "azure-event-hubs", "aws-kinesis", "aws-msk"),
    ] = Field(
        default="postgres",
        description="How readers learn of new events: notification by PostgreSQL, besides a mirror in NATS JetStream, or "
        "polling alone.",
    )
    write_path: Literal["ledger", "shadow", "stream"] = Field(
        default="ledger",
        description="Which write makes an event durable: its row in the ledger, the same with a materializer that proves "
        "it would write it too, or the acknowledgement of the stream.",
    )
    connection: StreamConnection = StreamConnection()
    lease_seconds: Count = Field(
        default=15, description="Seconds after which the shards of a silent relay or materializer go to others."
    )
    replay: Replay = Replay()
    idempotency_ttl_days: Count = Field(default=30, description="Days an idempotency key is remembered.")
    check_every: Amount = Field(
        default=CHECK_EVERY,
        description="Of so many appends of a process one is checked in full: whether its locators can be read and its references "
        "lead to the organization's own payloads. An event that fails is logged, counted and recorded; 0 checks none.",
    )
    partitions_ahead_months: Count = Field(default=3, description="Months for which partitions are made in advance.")
    retention: Retention = Retention()
    heads: Heads = Heads()


class SchemaRegistry(Section):
    """Where event schemas come from."""

    backend: Annotated[Literal["file"], Planned("db", "external")] = Field(
        default="file", description="Kind of registry: the files that come with NoETL."
    )


class Serialization(Section):
    """How values become bytes."""

    envelope_format: Literal["canonical-json"] = Field(
        default="canonical-json", description="Format of events (RFC 8785)."
    )
    tabular_payload_format: Literal["arrow-ipc-stream"] = Field(
        default="arrow-ipc-stream", description="Format of tables."
    )
    schema_registry: SchemaRegistry = SchemaRegistry()
    compression: Literal["zstd", "none"] = Field(default="zstd", description="Encoding of stored objects.")
    timezone: Literal["UTC"] = Field(default="UTC", description="Time zone of every recorded time.")


class PayloadConnection(Section):
    """Where payload objects are."""

    endpoint: HttpUrl | None = Field(
        default=None, description="Address of the object store; null is the provider's own."
    )
    bucket: Text | None = Field(
        default=None, description="Bucket, or container in Azure; needed by every remote backend."
    )
    prefix: str = Field(default="", description="Put before every object key.")
    region: Text | None = Field(default=None, description="Region of the bucket.")
    access_key: Text | None = Field(
        default=None, description="Access key, or account name in Azure; null uses the provider's own credential chain."
    )
    secret_key: SecretText | None = Field(default=None, description="Secret that belongs to the access key.")
    path: Location | None = Field(
        default=None, description="Directory of the local backend; null is `payloads` in `runtime.home`."
    )
    allow_http: bool = Field(default=False, description="Whether an endpoint without TLS may be used.")


class Cache(Section):
    """Local copies of payloads; hints only, safe to lose."""

    tier_1_memory_mb: Amount = Field(default=512, description="Tier 1, memory per process, in MiB; 0 turns it off.")
    tier_15_node_budget_mb: Amount = Field(
        default=1024, description="Tier 1.5, shared memory per node, in MiB; 0 turns it off."
    )
    tier_15_grace_seconds: Amount = Field(
        default=30, description="How long shared memory outlives the lease it was made for."
    )
    tier_15_carrier: Literal["posix", "memfd"] = Field(
        default="posix",
        description="Tier 1.5 as POSIX shared memory, or as anonymous memory that `noetl node-broker` hands out; where "
        "there is no anonymous memory, `memfd` is `posix`.",
    )
    tier_15_directory: Location | None = Field(
        default=None,
        description="Where the node's shared memory is; null is `/dev/shm`, or without it the system's temporary files.",
    )
    tier_15_broker: Location | None = Field(
        default=None, description="Socket of the node broker; null is `node-broker.sock` in `runtime.home`."
    )
    verify_ipc: bool = Field(
        default=False, description="Whether bytes in memory are proven by their digest at every read, also on the node."
    )
    tier_2_disk_gb: Amount = Field(
        default=10,
        description="Tier 2, local disk per node, in GiB; 0 turns it off. Only remote stores without encryption use it.",
    )
    tier_2_disk_path: Location | None = Field(
        default=None, description="Directory of Tier 2, and of Python environments; null is `cache` in `runtime.home`."
    )


class Collection(Section):
    """When payloads nobody refers to are deleted."""

    strategy: Literal["reference-count", "ttl"] = Field(
        default="reference-count", description="Whether objects go when no event refers to them, or by age."
    )
    ttl_days: Count = Field(default=90, description="Age at which the `ttl` strategy deletes an object.")
    grace_hours: Count = Field(
        default=24, description="Time a new object has to be referred to before it may be deleted."
    )


class PayloadStore(Section):
    """The store of large immutable values."""

    backend: Literal["local", "s3", "gcs", "azure-blob", "seaweedfs", "memory"] = Field(
        default="local", description="Kind of store; `memory` forgets everything when the process ends."
    )
    connection: PayloadConnection = PayloadConnection()
    threshold_bytes: Amount = Field(
        default=INLINE_LIMIT,
        le=INLINE_LIMIT,
        description="Results of steps up to this size stay inline in their event; `output.inline_max_bytes` of a task can "
        "only lower it.",
    )
    content_addressing: Literal["sha256"] = Field(default="sha256", description="Digest that names an object.")
    encryption_at_rest: bool = Field(default=False, description="Whether objects are encrypted with the tenant's key.")
    key_directory: Location | None = Field(
        default=None, description="Directory of the tenants' keys; null is `keys` in `runtime.home`."
    )
    cache: Cache = Cache()
    gc: Collection = Collection()


class ProjectionConnection(Section):
    """Where a projection store is."""

    dsn: PostgresUrl | None = Field(
        default=None, description="Connection of the store; null for `default`, which is the ledger's own database."
    )
    owner_dsn: PostgresUrl | None = Field(
        default=None,
        description="Connection of the role that owns the store's schema; `noetl db migrate --store` alone uses it.",
    )
    hosts: tuple[HttpUrl, ...] = Field(default=(), description="Addresses of a store that is reached by HTTP.")


class ProjectionStore(Section):
    """One place where projections are written; `default` always exists, in the ledger's own database."""

    backend: Annotated[
        Literal["postgres"],
        Planned(
            "search-store",
            "columnar-analytics",
            "streaming-materialized-view",
            instead="the event lake (`noetl lake`) serves analytics, views (`noetl views`) serve derived state",
        ),
    ] = Field(default="postgres", description="Kind of store.")
    connection: ProjectionConnection = ProjectionConnection()
    projections: tuple[Text, ...] = Field(
        default=(),
        description="Projections that this store has: `stage`, `frame`, `loop`, `fanout`, `business_object/<name>`, or "
        "`business_object` for all of those; `default` has the others, and executions always.",
    )


class Materialization(Section):
    """One derived copy of the events in another engine."""

    backend: Annotated[str, Planned("columnar-analytics", "streaming-materialized-view")] = Field(
        description="Engine that holds the copy."
    )
    source: Literal["event_store"] = Field(default="event_store", description="What is copied.")
    include_payload_refs: bool = Field(default=True, description="Whether payload references are copied too.")
    barrier_interval_ms: Count = Field(default=1000, description="Time between two consistent points of the copy.")
