"""Every setting of NoETL with its type, default and meaning; the reference page is made from these declarations.

Reads no file and no environment: `noetl.runtime.config.load_settings` does, and checks what spans several settings.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from noetl.model.shard import SHARD_COUNT
from noetl.runtime.server_settings import Server, Worker
from noetl.runtime.setting_types import Amount, Count, Location, Name, NodeName, PostgresUrl, Section, Text
from noetl.runtime.spark_settings import LakeSettings, Spark
from noetl.runtime.store_settings import EventStore, Materialization, PayloadStore, ProjectionStore, Serialization
from noetl.runtime.task_settings import Tasks


class Scheduler(Section):
    """How work is spread over workers."""

    locality_preference: Literal["node", "zone", "region", "any"] = Field(
        default="zone", description="How near to its input a frame should run."
    )
    max_inflight_frames_per_worker: Count = Field(default=4, description="Frames one worker may hold at a time.")


class Runtime(Section):
    """Who and where this process is."""

    home: Location = Field(
        default=Path(".noetl"), description="Directory of the embedded database, local payloads and keys."
    )
    tenant_id: Name = Field(default="default", description="Tenant that commands act for.")
    organization_id: Name = Field(default="default", description="Organization that commands act for.")
    node_id: NodeName = Field(
        default_factory=socket.gethostname,
        description="Name of this node in leases and shared-memory hints.",
        json_schema_extra={"default": "the host name"},
    )
    cluster_id: Name = Field(default="local", description="Name of the cluster in locators.")
    shard_id: Annotated[int, Field(ge=0, le=SHARD_COUNT - 1)] | None = Field(
        default=None, description="The one shard this process serves; null serves all of them."
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
    pool_min: Amount = Field(default=1, description="Connections each process keeps open.")
    pool_max: Count = Field(default=10, description="Connections each process may open.")
    idle_in_transaction_seconds: float = Field(
        default=5.0,
        gt=0,
        allow_inf_nan=False,
        description="An open transaction that stays idle this long is ended by the server.",
    )


class Projections(Section):
    """What the user adds to the folds."""

    business_objects: tuple[Text, ...] = Field(
        default=(), description="The user's folds, each as `module:name` of a function decorated with @business_object."
    )
    upcasters: tuple[Text, ...] = Field(
        default=(), description="Functions, as `module:name`, that register upcasters on the registry they are given."
    )


class Snapshots(Section):
    """Where snapshots are recorded."""

    backend: Literal["postgres"] = Field(default="postgres", description="Store of the snapshot rows.")


class FramePolicy(Section):
    """How much work one frame holds."""

    size: Count = Field(default=50, description="Rows in a frame, at most.")
    duration_ms: Count = Field(default=30_000, description="Milliseconds a frame may take.")
    memory_bytes: Count = Field(default=67_108_864, description="Bytes of Arrow buffers a frame may hold.")
    parallelism: Count = Field(default=1, description="Frames of one stage a worker may run at a time.")


class FanoutPolicy(FramePolicy):
    """How much work one shard of a fan-out holds."""

    size: Count = Field(default=1, description="Rows in a frame, at most.")
    duration_ms: Count = Field(default=5_000, description="Milliseconds a frame may take.")
    memory_bytes: Count = Field(default=16_777_216, description="Bytes of Arrow buffers a frame may hold.")
    parallelism: Count = Field(default=8, description="Frames of one stage a worker may run at a time.")


class FramePolicyDefaults(Section):
    """Frame policies of steps that declare none."""

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
    spark: Spark = Spark()
    lake: LakeSettings = LakeSettings()

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
    def cache_directory(self) -> Path:
        """Where payloads are cached on disk."""
        return self.payload_store.cache.tier_2_disk_path or self.runtime.home / "cache"
