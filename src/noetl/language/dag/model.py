"""A DAG that was read and checked: jobs, what they read, what they build; and which of it determines a job's rows."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Activation = Literal["source", "reactive"]
Runtime = Literal["dispatcher", "ecs_platform", "ecs_udf", "lambda", "spark"]
ExecutionStrategy = Literal["PerUpdate", "PerPartition"]
UpdateStrategy = Literal["append", "replace"]
SchemaChange = Literal["refuse", "add_columns", "widen", "any"]
Severity = Literal["block", "warn"]
Scalar = str | int | float | bool | None


class From(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an input comes from: another job's output, or a dataset published under a name."""

    job: str | None = None
    output: int = 0
    dataset: str | None = None


class Input(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input of a job."""

    source: From
    alias: str
    """The name the job knows the input by: given, else the job's or dataset's own name."""
    trigger: bool = True
    """Whether a change of this input starts the job; otherwise it is only read."""
    where: dict[str, Scalar | list[Scalar]] = {}
    """Rows that are read: each column equals its value or one of its list; all must hold."""


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One promise about an output's rows."""

    kind: Literal["not_null", "unique", "range", "set", "row_count", "freshness", "sql"]
    columns: tuple[str, ...] = ()
    min: Any = None
    max: Any = None
    values: tuple[Any, ...] = ()
    max_age_seconds: float | None = None
    sql: str | None = None
    """A query over the relation `output`; each row it returns is a violation."""
    severity: Severity = "block"
    output: int = 0

    @property
    def label(self) -> str:
        """What a person calls this check."""
        return f"{self.kind}({', '.join(self.columns)})" if self.columns else self.kind


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declared column, with its type as Spark's DDL spells it."""

    name: str
    type: str
    nullable: bool = True


class Schema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What columns an output has, and how that may change from one commit to the next."""

    columns: tuple[Column, ...] = ()
    """Empty: taken from the first commit."""
    evolve: SchemaChange = "refuse"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What starts a source job."""

    kind: Literal["manual", "cron", "always_on", "webhook"] = "manual"
    schedule: str | None = None
    timezone: str = "UTC"
    """The zone that the fields of a schedule mean."""
    catch_up: Literal["latest_only", "every_plan"] = "latest_only"
    webhook_path: str | None = None
    secret: str | None = None
    """The credential by which senders sign what they send to a webhook."""
    signature: Literal["noetl", "github", "none"] = "noetl"
    every: str | None = None
    """The least time from the start of one turn of an always-on source to the start of the next."""


class Udf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """User code of an `ecs_udf` job."""

    bundle_id: str | None = None
    entrypoint: str


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job with every default filled in."""

    name: str
    activation: Activation
    runtime: Runtime
    operator: str
    outputs: int = 1
    inputs: tuple[Input, ...] = ()
    wait: Literal["any", "all"] = "any"
    """`all`: a partition is worked once every triggering input has it; `any`: as soon as one has."""
    partition_by: tuple[str, ...] = ()
    execution_strategy: ExecutionStrategy | None = None
    update_strategy: UpdateStrategy = "replace"
    unique_key: tuple[str, ...] = ()
    source: Source | None = None
    reset_outputs: bool = False
    idle_timeout: str | None = None
    secrets: tuple[str, ...] = ()
    max_concurrency: int | None = None
    timeout_seconds: float | None = None
    heartbeat_timeout_seconds: float = 120.0
    """How long a lease lasts without a heartbeat."""
    max_attempts: int = 3
    checks: tuple[Check, ...] = ()
    schema: Schema = Schema()
    spark: dict[str, str] = {}
    udf: Udf | None = None
    config: dict[str, Any] = {}
    """What the operator is told: for spark_sql `sql` or `file`, for pyspark `function` or `script`, and so on."""

    @property
    def upstream(self) -> tuple[str, ...]:
        """The jobs of the same DAG this one reads."""
        return tuple(dict.fromkeys(one.source.job for one in self.inputs if one.source.job is not None))


class Dag(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG with every default filled in; jobs stand in an order in which each follows what it reads."""

    name: str
    jobs: tuple[Job, ...]
    publish: dict[str, From] = {}
    """Published name to the job's output."""
    files: tuple[str, ...] = ()
    """Files beside the YAML that jobs name (SQL, Python, playbooks, requirements), as relative POSIX paths."""

    def job(self, name: str) -> Job:
        """Return a job by its name."""
        return next(job for job in self.jobs if job.name == name)


_DECIDES_NO_ROW: Final = (
    "name", "activation", "source", "reset_outputs", "idle_timeout", "max_concurrency", "timeout_seconds",
    "heartbeat_timeout_seconds", "max_attempts", "spark",
)  # fmt: skip
"""What a job may change without its rows becoming others."""


def deciding_definition(job: Job) -> dict[str, Any]:
    """Return all of a job that decides its rows, without what equals its default: fields to come change no digest."""
    return {key: one for key, one in _told(job).items() if key not in _DECIDES_NO_ROW}


def _told(value: Any) -> Any:
    # Not `omit_defaults`: that goes by identity, so equal jobs would differ by where their texts came from.
    if isinstance(value, msgspec.Struct):
        told = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(type(value)))
        return {field.encode_name: _told(one) for field, one in told if field.required or one != _default(field)}
    if isinstance(value, dict):
        return {key: _told(one) for key, one in value.items()}
    return [_told(one) for one in value] if isinstance(value, list | tuple) else value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
