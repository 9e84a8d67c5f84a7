"""One attempt at one task goes in, what it wrote and how its checks came out comes out. It commits nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.errors import InputError
from noetl.language.dag.model import Check
from noetl.language.dag.requirements import declared, missing
from noetl.model.dataset import FileEntry, partition_values
from noetl.model.task import CheckResult, InputPart, PartitionWrite, TaskTarget
from noetl.spark.drivers.ongoing_work import Interrupted, working
from noetl.spark.drivers.protocol import Work, WorkResult
from noetl.spark.lake.executor_rows import Place
from noetl.spark.lake.reader import frame_of
from noetl.spark.lake.storage import Lake
from noetl.spark.lake.writer import is_dynamic, own_session_settings, write_output
from noetl.spark.operators.built_in import configured
from noetl.spark.operators.checks import run_checks
from noetl.spark.operators.failures import failed
from noetl.spark.operators.footer_checks import Subject
from noetl.spark.operators.lineage import marked, told_lineage
from noetl.spark.operators.port import Given
from noetl.spark.operators.registry import operator_of
from noetl.spark.operators.spark_sql import job_query
from noetl.spark.operators.uniqueness import unique_write
from noetl.spark.session.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_TOLD_EXACTLY: Final = ("tinyint", "smallint", "int", "bigint", "string", "date")


def run_alone(session: SparkSession, work: Work, lake: Lake) -> WorkResult:
    """Run one attempt in a session of its own; whatever goes wrong is its result."""
    try:
        with working(session, [work.tag]):
            return _attempt(task_session(session, work), work, lake)
    except (Exception, Interrupted) as error:
        return failed(work, error)


def task_session(session: SparkSession, work: Work) -> SparkSession:
    """Return a session for one task, or for tasks of one job; refuses a job whose packages are not in this driver."""
    _refuse_missing_packages(work.grant.config)
    own = new_session(session, work.grant.spark, work.grant.job)
    for name, value in own_session_settings().items():
        if name not in work.grant.spark:
            own.conf.set(name, value)
    return own


def _refuse_missing_packages(config: Mapping[str, Any]) -> None:
    def read(name: str) -> bytes | None:
        found = next((path for base in sys.path if (path := Path(base, name)).is_file()), None)
        return None if found is None else found.read_bytes()

    lacking = missing(declared(config, read)) if "requirements" in config else []
    if lacking:
        raise InputError(f"the job needs {', '.join(lacking)}, which is not where the drivers run: install it there")


def place_of(work: Work) -> Place:
    """Return whose files an attempt writes."""
    return Place(work.grant.lease.task_id, work.grant.lease.attempt, work.grant.partition_key)


def column_types(inputs: Mapping[str, DataFrame]) -> dict[str, DataType]:
    """Return the types that the inputs give to column names, the first input first."""
    types: dict[str, DataType] = {}
    for rows in inputs.values():
        for one in rows.schema:
            types.setdefault(one.name, one.dataType)
    return types


def made_unique(
    session: SparkSession, work: Work, target: TaskTarget, write: PartitionWrite, lake: Lake
) -> PartitionWrite:
    """Return a write on top of what stands of its partition: for `append`, without rows whose key stands there."""
    part = standing_part(target, write.partition_key)
    if target.update_strategy != "append":
        return write
    if part is not None:
        write = msgspec.structs.replace(write, base_version=part.version)
    if not target.unique_key:
        return write
    base = work.manifests[part.manifest.sha256] if part is not None else None
    files, schema = (base.files, base.schema) if base is not None else ((), ())
    return unique_write(session, write, files, schema, target, place_of(work), lake)


def standing_part(target: TaskTarget, key: str) -> InputPart | None:
    """Return what stands of a partition."""
    return next((part for part in target.parts if part.partition_key == key), None)


def output_checks(work: Work, target: TaskTarget) -> tuple[Check, ...]:
    """Return the checks of an output: those of the job, and that columns declared not to be null are not."""
    own = tuple(one for one in configured(work.grant.checks) if one.output == target.output)
    full = tuple(one.name for one in target.declared if not one.nullable)
    return (*own, Check(kind="not_null", columns=full, output=target.output)) if full else own


def subject_of(work: Work, target: TaskTarget, writes: Sequence[PartitionWrite]) -> Subject:
    """Return what the checks of an output are about: the files written, and for `append` those beside them."""
    standing: list[FileEntry] = []
    if target.update_strategy == "append":
        parts = [standing_part(target, write.partition_key) for write in writes]
        standing = [entry for part in parts if part for entry in work.manifests[part.manifest.sha256].files]
    files = tuple(entry for write in writes for entry in write.files)
    schema = writes[0].schema if writes else target.schema or target.declared
    return Subject(schema=schema, files=files, standing=tuple(standing))


def refuse_foreign_rows(target: TaskTarget, write: PartitionWrite) -> None:
    """Refuse rows that say themselves that they belong to another partition, as far as footers tell."""
    types = {one.name: one.type for one in write.schema}
    for name, text in partition_values(write.partition_key).items():
        stats = [entry.stats.get(name, {}) for entry in write.files]
        bounds = [str(one[end]) for one in stats for end in ("min", "max") if end in one]
        other = next((found for found in bounds if found != text), None)
        if types.get(name) in _TOLD_EXACTLY and other is not None:
            raise InputError(
                f"output {target.output} has rows with {name} = {other!r} in the partition {write.partition_key!r}: "
                f"keep {name!r} as the inputs have it, or leave it out and it is filled in"
            )


def ended_well(
    work: Work, writes: Sequence[PartitionWrite], checks: Sequence[CheckResult], since: float, **more: Any
) -> WorkResult:
    """Return the result of an attempt that went through; its checks may still have failed."""
    files = [entry for write in writes for entry in write.files]
    metrics = {
        "rows": sum(entry.rows for entry in files),
        "bytes": sum(entry.bytes for entry in files),
        "files": len(files),
        "seconds": round(time.perf_counter() - since, 3),
    }
    return WorkResult(
        task_id=work.grant.lease.task_id,
        attempt=work.grant.lease.attempt,
        status="ok",
        writes=tuple(writes),
        checks=tuple(checks),
        metrics=metrics | more.pop("metrics", {}),
        **more,
    )


def _attempt(own: SparkSession, work: Work, lake: Lake) -> WorkResult:
    since, grant = time.perf_counter(), work.grant
    inputs = {one.alias: marked(frame_of(own, one, work.manifests, lake), one.alias) for one in grant.inputs}
    made = operator_of(grant.operator)(Given(own, work, inputs, lake))
    _refuse_other_outputs(work, made.outputs)
    lineage = told_lineage(work, made.outputs, inputs, job_query(work) if grant.operator == "spark_sql" else None)
    types = column_types(inputs)
    writes: list[PartitionWrite] = []
    dropped: list[tuple[int, str]] = []
    checks = list(made.checks)
    for target in grant.targets:
        rows = made.outputs[target.output]
        some = [
            made_unique(own, work, target, write, lake)
            for write in write_output(rows, target, place_of(work), lake, types=types)
        ]
        if is_dynamic(target, grant.partition_key):
            dropped += _dropped(target, some)
        else:
            refuse_foreign_rows(target, some[0])
        wanted = output_checks(work, target) if grant.operator != "quality_check" else ()
        if wanted:
            checks += run_checks(own, wanted, [subject_of(work, target, some)], lake)[0]
        writes += some
    return ended_well(work, writes, checks, since, dropped=tuple(dropped), lineage=lineage, operator_state=made.state)


def _dropped(target: TaskTarget, writes: Sequence[PartitionWrite]) -> list[tuple[int, str]]:
    if target.update_strategy != "replace":
        return []
    written = {write.partition_key for write in writes}
    return [(target.output, part.partition_key) for part in target.parts if part.partition_key not in written]


def _refuse_other_outputs(work: Work, outputs: Mapping[int, DataFrame]) -> None:
    wanted = {target.output for target in work.grant.targets}
    if wanted != set(outputs):
        raise InputError(
            f"job {work.grant.job!r} has {len(wanted)} outputs ({_listed(wanted)}), but its operator "
            f"{work.grant.operator!r} returned {len(outputs)} ({_listed(outputs)})"
        )


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
