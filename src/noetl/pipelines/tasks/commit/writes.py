"""What a commit is to do, decided from a report and from what stands: versions, bases and schema changes. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from noetl.errors import InputError
from noetl.model.dataset import Field, Manifest, schema_hash
from noetl.model.payload_ref import PayloadRef
from noetl.model.task import PartitionWrite, TaskGrant, TaskReport, TaskTarget, merged
from noetl.pipelines.plan.schema_rules import judge, refusal
from noetl.pipelines.tasks.commit.outputs import Standing
from noetl.pipelines.tasks.port import Place


class Refused(InputError):
    """What was written may not be committed, however often it is tried."""

    code = "schema_refused"


class PlannedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One partition to commit."""

    write: PartitionWrite
    version: int
    """The partition's version after it."""
    dataset_version: str
    base: PayloadRef | None
    """The manifest whose files stay, for an append."""

    def manifest(self, base: Manifest | None) -> Manifest:
        """Return what a reader will see."""
        return merged(base, self.write, self.version, self.dataset_version, append=self.base is not None)


class SchemaChange(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a generation that are fixed or changed by a commit."""

    target: TaskTarget
    schema: tuple[Field, ...]
    change: Literal["first", "evolved"]
    version: int | None
    """The version of the generation's stream this builds on."""

    @property
    def schema_hash(self) -> str:
        """The digest of the columns."""
        return schema_hash(self.schema)


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """All that a commit does to datasets."""

    parts: dict[Place, PlannedWrite]
    dropped: dict[Place, int]
    """Partitions that go, with the version they have."""
    schemas: list[SchemaChange]
    unsure: bool
    """Whether something it builds on is not known, or is not what the rows were made unique against."""


def planned_writes(grant: TaskGrant, report: TaskReport, standing: Standing) -> Writes:
    """Decide what a report does to what stands; raises Refused when a schema may not change so."""
    targets = {target.output: target for target in grant.targets}
    unknown = sorted({write.output for write in report.writes} - targets.keys())
    if unknown:
        raise Refused(f"job {grant.job} has no output {unknown[0]}; it has {len(targets)}")
    schemas = [
        change
        for output, target in targets.items()
        for change in _schema_change(target, [one for one in report.writes if one.output == output], standing)
    ]
    evolved = {change.target.output: change.schema for change in schemas}
    parts: dict[Place, PlannedWrite] = {}
    for write in report.writes:
        place, target = (write.output, write.partition_key), targets[write.output]
        strangers = [one.path for one in write.files if not _below(target.location, one.path)]
        if strangers:
            raise Refused(f"{strangers[0]} is no file of the generation it is committed to, below {target.location}")
        if place in parts:
            raise Refused(f"partition {write.partition_key} of output {write.output} is written twice")
        part = standing.parts.get(place)
        keeps = target.update_strategy == "append" and part is not None
        if keeps:
            # Files of earlier commits stay, so the manifest has the columns of all.
            columns = evolved.get(write.output) or standing.schemas[write.output][0] or write.schema
            write = msgspec.structs.replace(write, schema=columns)
        parts[place] = PlannedWrite(
            write=write,
            version=(part.version if part is not None else standing.gone.get(place, 0)) + 1,
            dataset_version=target.dataset_version,
            base=part.manifest if keeps and part is not None else None,
        )
    dropped = {
        (output, key): standing.parts[output, key].version
        for output, key in report.dropped
        if (output, key) in standing.parts and (output, key) not in parts
    }
    unsure = any(change.version is None for change in schemas) or bool(outrun(grant, report, standing))
    return Writes(parts=parts, dropped=dropped, schemas=schemas, unsure=unsure)


def outrun(grant: TaskGrant, report: TaskReport, standing: Standing) -> list[Place]:
    """Return the partitions whose rows were made unique against another version than stands."""
    unique = {target.output for target in grant.targets if target.unique_key}
    return [
        (write.output, write.partition_key)
        for write in report.writes
        if write.output in unique and write.base_version != _version(standing, (write.output, write.partition_key))
    ]


def _below(location: str, path: str) -> bool:
    """Tell whether a file lies below a prefix: what another generation has would go with that one."""
    return path.startswith(location) and ".." not in path.split("/")


def _version(standing: Standing, place: Place) -> int:
    part = standing.parts.get(place)
    return 0 if part is None else part.version


def _schema_change(target: TaskTarget, writes: list[PartitionWrite], standing: Standing) -> list[SchemaChange]:
    current, version = standing.schemas[target.output]
    schema: tuple[Field, ...] = current
    for columns in dict.fromkeys(write.schema for write in writes):
        verdict = judge(schema, columns, target.declared, target.evolve)
        if verdict.problems:
            raise Refused(refusal(target.dataset_name, verdict, target.evolve))
        schema = verdict.schema
    if schema == current:
        return []
    change: Literal["first", "evolved"] = "evolved" if current else "first"
    return [SchemaChange(target=target, schema=schema, change=change, version=version)]
