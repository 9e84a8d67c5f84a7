"""Every setting of NoETL with its type, default and meaning; the reference page is made from these declarations.

Reads no file and no environment: `noetl.runtime.config.load_settings` does, and checks what spans several settings.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from noetl.runtime.settings.data import Curated, EventLakeSettings, Query, Views
from noetl.runtime.settings.messages import Alerts, OpenLineage
from noetl.runtime.settings.outgoing import Outgoing, Secrets
from noetl.runtime.settings.retention import Retention
from noetl.runtime.settings.server import Server, Worker
from noetl.runtime.settings.spark import LakeSettings, Spark
from noetl.runtime.settings.stores import EventStore, Materialization, PayloadStore, ProjectionStore, Serialization
from noetl.runtime.settings.types import Amount, Count, Location, Name, NodeName, PostgresUrl, Section, Text
from noetl.runtime.settings.work import Backfill, Schedules, Sources, Tasks


class Scheduler(Section):
    """How work is spread over workers."""

    locality_preference: Literal["node", "zone", "region", "any"] = Field(
        default="zone",
        description="Work that reads payloads is first for workers of the node that holds them, then of its zone, then "
        "of its region, up to the one named here, then for anybody; `any` leaves it to nobody.",
    )
    locality_wait_ms: Amount = Field(
        default=200,
        description="Milliseconds for which work is left to its node, then to its zone, then to its region.",
    )
    max_distance: Literal["node", "zone", "region", "any"] = Field(
        default="any",
        description="The farthest from its inputs that a worker of this process takes work; what no worker takes waits.",
    )
    max_inflight_frames_per_worker: Count | None = Field(
        default=None,
        description="Frames one worker may hold at a time, so that loops leave some of its slots to other work; null: as many "
        "as it has slots.",
    )
    max_frame_ctx_bytes: Count = Field(
        default=1_048_576,
        description="Bytes, as JSON, that the rows of one frame may set in `ctx`; a row that would go beyond fails. What does "
        "not fit into the event of the frame is kept as a payload.",
    )
    max_child_depth: Count = Field(
        default=50,
        description="Levels that playbooks may call each other down; a task that would start a playbook deeper fails.",
    )


class Runtime(Section):
    """Who and where this process is."""

    home: Location = Field(
        default=Path(".noetl"),
        description="Directory of the embedded database, local payloads and keys. By default `.noetl` of the project: of the "
        "nearest directory, from the working directory upwards, that has `.noetl` or `noetl.yaml`.",
    )
    tenant_id: Name = Field(default="default", description="Tenant that commands act for.")
    organization_id: Name = Field(default="default", description="Organization that commands act for.")
    node_id: NodeName = Field(
        default_factory=socket.gethostname,
        description="Name of this node in leases and shared-memory hints.",
        json_schema_extra={"default": "the host name"},
    )
    cluster_id: Name = Field(default="local", description="Name of the cluster in locators.")
    region: NodeName | None = Field(default=None, description="Region this node stands in.")
    zone: NodeName | None = Field(default=None, description="Zone this node stands in.")
    shard_id: NodeName | None = Field(
        default=None,
        description="Stable name of this process among projectors, such as `noetl-projector-0`; null is the node's name.",
    )
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="Port on which a role without an API (worker, scheduler, projector, relay, materializer) gives `/metrics` "
        "and `/health`; null gives none, 0 takes a free one.",
    )
    metrics_host: Text = Field(
        default="127.0.0.1", description="Address of that port; any but the loopback needs `runtime.metrics_open`."
    )
    metrics_open: bool = Field(
        default=False, description="Whether anybody who reaches that address may read the metrics, without a token."
    )
    scheduler: Scheduler = Scheduler()


class Database(Section):
    """The PostgreSQL server that holds the ledger."""

    url: PostgresUrl | None = Field(
        default=None,
        description="Connection of the runtime role; null starts the embedded server under `runtime.home`.",
    )
    owner_url: PostgresUrl | None = Field(
        default=None,
        description="Connection of the role that owns the schema; only migrations and partition upkeep use it.",
    )
    pool_min: Amount = Field(
        default=0,
        description="Connections that each pool of a process keeps open even when nothing uses them, so that work need not "
        "wait for them.",
    )
    pool_max: Count = Field(default=10, description="Connections that each pool of a process may open.")
    idle_in_transaction_seconds: float = Field(
        default=5.0,
        gt=0,
        allow_inf_nan=False,
        description="An open transaction that stays idle this long is ended by the server.",
    )


class Projections(Section):
    """What the user adds to the folds, and who runs them."""

    business_objects: tuple[Text, ...] = Field(
        default=(), description="The user's folds, each as `module:name` of a function decorated with @business_object."
    )
    upcasters: tuple[Text, ...] = Field(
        default=(), description="Functions, as `module:name`, that register upcasters on the registry they are given."
    )
    in_server: bool | None = Field(
        default=None,
        description="Whether `noetl server` writes projections itself; null does so while no `noetl projector` lives.",
    )
    lease_seconds: Count = Field(
        default=15, description="Seconds after which a silent projector's shards go to others."
    )
    barrier_interval_ms: Count = Field(
        default=1000,
        description="Milliseconds between two barriers of a projector, each told as `checkpoint.committed`.",
    )


class Snapshots(Section):
    """Where snapshots are recorded."""

    backend: Literal["postgres"] = Field(default="postgres", description="Store of the snapshot rows.")


class FramePolicy(Section):
    """How much work one frame holds."""

    size: Count | None = Field(
        default=None, description="Rows in a frame, at most; up to 100, and 50 of a cursor, if left out."
    )
    duration_ms: Count = Field(default=30_000, description="Milliseconds a frame may take.")
    memory_bytes: Count = Field(default=67_108_864, description="Bytes of Arrow buffers a frame may hold.")
    parallelism: Count = Field(default=1, description="Frames of one stage that run at a time: max_in_flight.")


class FanoutPolicy(FramePolicy):
    """How much work one shard of a fan-out holds."""

    size: Count | None = Field(default=1, description="Has no effect: a shard is one row, tried again by itself.")
    duration_ms: Count = Field(default=5_000, description="Milliseconds a frame may take.")
    memory_bytes: Count = Field(default=16_777_216, description="Bytes of Arrow buffers a frame may hold.")
    parallelism: Count = Field(default=8, description="Shards of one stage that run at a time: max_in_flight.")


class FramePolicyDefaults(Section):
    """What loops have that do not say it themselves."""

    loop: FramePolicy = FramePolicy()
    fanout: FanoutPolicy = FanoutPolicy()


class Settings(Section):
    """All settings of one process."""

    runtime: Runtime = Field(default_factory=Runtime)
    database: Database = Database()
    event_store: EventStore = EventStore()
    serialization: Serialization = Serialization()
    payload_store: PayloadStore = PayloadStore()
    projection_stores: dict[str, ProjectionStore] = Field(default={}, validate_default=True)
    materializations: dict[str, Materialization] = Field(default={})
    projections: Projections = Projections()
    snapshots: Snapshots = Snapshots()
    frame_policy_defaults: FramePolicyDefaults = FramePolicyDefaults()
    server: Server = Server()
    worker: Worker = Worker()
    tasks: Tasks = Tasks()
    sources: Sources = Sources()
    schedules: Schedules = Schedules()
    backfill: Backfill = Backfill()
    alerts: Alerts = Alerts()
    spark: Spark = Spark()
    lake: LakeSettings = LakeSettings()
    event_lake: EventLakeSettings = EventLakeSettings()
    openlineage: OpenLineage = OpenLineage()
    query: Query = Query()
    curated: Curated = Curated()
    retention: Retention = Retention()
    views: Views = Views()
    outgoing: Outgoing = Outgoing()
    secrets: Secrets = Secrets()

    @field_validator("projection_stores")
    @classmethod
    def _always_a_default(cls, stores: dict[str, ProjectionStore]) -> dict[str, ProjectionStore]:
        return {"default": ProjectionStore()} | stores

    @property
    def payload_directory(self) -> Path:
        """Where the local payload store keeps its objects."""
        return self.payload_store.connection.path or self.runtime.home / "payloads"

    @property
    def key_directory(self) -> Path:
        """Where the tenants' keys are."""
        return self.payload_store.key_directory or self.runtime.home / "keys"

    @property
    def head_directory(self) -> Path:
        """Where the files of signed heads are."""
        return self.event_store.heads.path or self.runtime.home / "heads"

    @property
    def cache_directory(self) -> Path:
        """Where payloads are cached on disk."""
        return self.payload_store.cache.tier_2_disk_path or self.runtime.home / "cache"
