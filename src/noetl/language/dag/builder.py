"""Makes the DAG from a tree that was found sound: defaults are filled in, and each job follows what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from noetl.language.dag.ddl import spelled
from noetl.language.dag.model import Check, Column, Dag, From, Input, Job, Schema, Source, Udf
from noetl.language.dag.operators import DELIVERY_COLUMNS
from noetl.language.dag.rules.graph import in_order
from noetl.language.dag.written_job import Origin, WrittenJob, origin_of
from noetl.language.grammar.tree import Node

_SHARED = ("timeout_seconds", "heartbeat_timeout_seconds", "max_attempts")


def dag_from(root: Node, jobs: Sequence[WrittenJob], files: Mapping[str, Sequence[str]]) -> Dag:
    """Return the DAG; `files` are those each job names."""
    defaults = root.get("defaults") or Node({}, root.place)
    built = {job.name: _job(job, defaults) for job in jobs}
    publish = root.get("publish")
    return Dag(
        name=str(root.mapping["name"].text),
        jobs=tuple(built[name] for name in in_order({name: job.upstream for name, job in built.items()})),
        publish={
            name: _from(origin)
            for name, entry in sorted({} if publish is None else publish.mapping.items())
            if (origin := origin_of(entry)) is not None
        },
        files=tuple(sorted({name for names in files.values() for name in names})),
    )


def _job(job: WrittenJob, defaults: Node) -> Job:
    node = job.node
    given: dict[str, Any] = {key: found for key in _SHARED if (found := _plain(node, defaults, key)) is not None}
    inputs = tuple(_input(one, starts=not job.is_source) for one in job.inputs)
    source = node.get("source")
    return Job(
        name=job.name,
        activation="source" if job.is_source else "reactive",
        runtime=cast("Any", job.runtime),
        operator=str(job.operator),
        outputs=job.outputs,
        inputs=inputs,
        wait=cast("Any", job.text("wait") or "any"),
        partition_by=job.partition_by,
        execution_strategy=None if job.is_source else cast("Any", job.text("execution_strategy") or "PerPartition"),
        update_strategy="append" if job.appends else "replace",
        unique_key=_texts(job, "unique_key"),
        source=(Source() if source is None else msgspec.convert(source.plain(), Source)) if job.is_source else None,
        reset_outputs=bool(node.get("bootstrap") and (node.mapping["bootstrap"].plain()).get("reset_outputs")),
        idle_timeout=_idle(job, defaults),
        secrets=_texts(job, "secrets"),
        # A source that is kept running has one turn at a time, whatever holds for the others.
        max_concurrency=1 if _kept(job) else _plain(node, defaults, "scaling", "max_concurrency"),
        checks=tuple(_check(one) for one in job.items("checks")),
        schema=_schema(job),
        spark=_spark(defaults) | _spark(node),
        udf=None if (udf := node.get("udf")) is None else msgspec.convert(udf.plain(), Udf),
        config=_config(job),
        **given,
    )


def _plain(node: Node, defaults: Node, *path: str) -> Any:
    found = node.get(*path) or defaults.get(*path)
    return None if found is None else found.plain()


def _kept(job: WrittenJob) -> bool:
    return job.is_source and job.text("source", "kind") == "always_on"


def _texts(job: WrittenJob, key: str) -> tuple[str, ...]:
    return tuple(str(one.text) for one in job.columns(key))


def _idle(job: WrittenJob, defaults: Node) -> str | None:
    found = None if job.is_source else _plain(job.node, defaults, "idle_timeout")
    return None if found is None else str(found)


def _input(node: Node, *, starts: bool) -> Input:
    origin = origin_of(node)
    assert origin is not None
    trigger, where = node.get("trigger"), node.get("where")
    return Input(
        source=_from(origin),
        alias=str(node.mapping["alias"].text),
        trigger=starts if trigger is None else bool(trigger.value),
        where={} if where is None else where.plain(),
    )


def _from(origin: Origin) -> From:
    return From(job=origin.job, output=origin.output, dataset=origin.dataset)


def _check(node: Node) -> Check:
    return msgspec.convert(node.plain(), Check)


def _schema(job: WrittenJob) -> Schema:
    columns = tuple(
        Column(str(one.mapping["name"].text), spelled(str(one.mapping["type"].text)), _nullable(one))
        for one in job.items("schema", "columns")
    )
    if columns and job.tells_delivery:
        written = {column.name for column in columns}
        added = [(name, kind) for name, kind in DELIVERY_COLUMNS.items() if name not in written]
        columns += tuple(Column(name, kind, nullable=False) for name, kind in added)
    return Schema(columns=columns, evolve=cast("Any", job.text("schema", "evolve") or "refuse"))


def _nullable(column: Node) -> bool:
    node = column.get("nullable")
    return True if node is None else bool(node.value)


def _spark(holder: Node) -> dict[str, str]:
    found = holder.get("spark")
    plain = {} if found is None else found.plain()
    # Spark's own settings are text, in which flags are small.
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in plain.items()}


def _config(job: WrittenJob) -> dict[str, Any]:
    found = job.node.get("config")
    config: dict[str, Any] = {} if found is None else found.plain()
    if job.operator == "quality_check":
        checks = [_check(one) for one in job.items("config", "checks")]
        config["checks"] = msgspec.json.decode(msgspec.json.encode(checks))
    return config
