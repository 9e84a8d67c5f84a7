"""Reports about tasks of dataset jobs, checked against the grant: outputs, files, counts, checks, columns and references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

import msgspec

from noetl.engine.dispatch.reports import references
from noetl.engine.dispatch.reports.references import Named
from noetl.engine.dispatch.reports.refusals import count, json_bytes, name, named, one_of, refuse
from noetl.language.dag.model import Check
from noetl.model.dataset import ALL, FileEntry, partition_key, partition_values
from noetl.model.task import PartitionWrite, TaskGrant, TaskReport, TaskTarget

MOST_BYTES: Final = 1 << 50
"""The largest file that may be claimed."""
MOST_FILES: Final = 1_000_000
TOLD_BYTES: Final = 32_768
"""Metrics of a task as JSON; they stand in its last event."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_ADDED: Final = 2**53


def end(grant: TaskGrant, report: TaskReport) -> list[Named]:
    """Return the references of a report that are to be looked up; what contradicts the grant is refused."""
    targets = {target.output: target for target in grant.targets}
    places: set[tuple[int, str]] = set()
    paths: set[str] = set()
    for number, write in enumerate(report.writes):
        target = _target(f"report.writes[{number}].output", write.output, targets, grant)
        _write(f"report.writes[{number}]", write, target, paths)
        if (write.output, write.partition_key) in places:
            refuse(f"report.writes[{number}].partition_key", write.partition_key, "it is written twice")
        places.add((write.output, write.partition_key))
    count("the number of files", len(paths), f"a task commits {MOST_FILES} at most", most=MOST_FILES)
    for output, key in report.dropped:
        _key("report.dropped", key, _target("report.dropped", output, targets, grant))
    _checks(grant, report)
    _lineage(grant, report, targets)
    if json_bytes(named("report.metrics", report.metrics)) > TOLD_BYTES:
        refuse("report.metrics", f"{len(report.metrics)} metrics", f"they take more than {TOLD_BYTES} bytes")
    if report.error_kind is not None:
        name("report.error_kind", report.error_kind)
    return references.one("report.logs", report.logs)


def _target(field: str, output: int, targets: Mapping[int, TaskTarget], grant: TaskGrant) -> TaskTarget:
    if output not in targets:
        refuse(field, output, f"job {grant.job} has no output {output}; it has {len(targets)}")
    return targets[output]


def _write(field: str, write: PartitionWrite, target: TaskTarget, paths: set[str]) -> None:
    _key(f"{field}.partition_key", write.partition_key, target)
    count(f"{field}.base_version", write.base_version, "a version is a whole number from 0")
    columns = [name(f"{field}.schema", one.name) for one in write.schema]
    if len(set(columns)) < len(columns):
        refuse(f"{field}.schema", sorted(columns), "no two columns have one name")
    for one in write.schema:
        name(f"{field}.schema.{one.name}"[:200], one.type, "a type is spelled as Spark spells it")
    for entry in write.files:
        _file(f"{field}.files", entry, target)
        if entry.path in paths:
            refuse(f"{field}.files.path", entry.path, "the same file is named twice")
        paths.add(entry.path)


def _key(field: str, key: str, target: TaskTarget) -> None:
    """Refuse a name that no partition of the dataset has."""
    name(field, key)
    columns = target.partition_by
    has = f"a partition of {target.dataset_name} is named by {', '.join(columns) or 'the word all'}"
    if not columns or key == ALL:
        if key != ALL:
            refuse(field, key, has)
        return
    try:
        values = partition_values(key)
        sound = tuple(values) == tuple(columns) and partition_key(columns, values) == key
    except (KeyError, ValueError):
        sound = False
    if not sound:
        refuse(field, key, has)


def _file(field: str, entry: FileEntry, target: TaskTarget) -> None:
    path = PurePosixPath(entry.path)
    plain = str(path) == entry.path and ".." not in path.parts and entry.path.isprintable()
    if not plain or not entry.path.startswith(target.location):
        refuse(f"{field}.path", entry.path, f"the file does not lie in {target.location}, where its generation is")
    if not _DIGEST.fullmatch(entry.sha256):
        refuse(f"{field}.sha256", entry.sha256, "it is no SHA-256 in lower-case hex")
    size = count(f"{field}.bytes", entry.bytes, "a file has 0 bytes to 1 PiB", most=MOST_BYTES)
    rows = count(f"{field}.rows", entry.rows, "a file has 0 rows or more", most=_ADDED)
    if rows and not size:
        refuse(f"{field}.bytes", size, f"the file is said to have {rows} rows")
    named(f"{field}.stats", entry.stats)


def _checks(grant: TaskGrant, report: TaskReport) -> None:
    """Refuse a report that leaves a blocking check out, or makes it a warning."""
    wanted = [msgspec.convert(one, Check) for one in grant.checks]
    severities = {(check.label, check.output): check.severity for check in wanted}
    for number, told in enumerate(report.checks):
        field = f"report.checks[{number}]"
        broken = count(f"{field}.violations", told.violations, "violations are counted from 0", most=_ADDED)
        if told.passed and broken:
            refuse(f"{field}.passed", told.passed, f"it tells of {broken} violations")
        name(f"{field}.label", told.label)
        declared = severities.get((told.label, told.output), told.severity)
        one_of(f"{field}.severity", told.severity, (declared,), f"{told.label} is declared as {declared}")
    if report.status != "ok" or grant.operator == "quality_check":
        return
    written = {write.output for write in report.writes if write.files}
    told_of = {(told.label, told.output) for told in report.checks}
    for (label, output), severity in severities.items():
        if severity == "block" and output in written and (label, output) not in told_of:
            refuse(
                "report.checks", sorted(told_of), f"output {output} is held against {label}, of which it does not tell"
            )


def _lineage(grant: TaskGrant, report: TaskReport, targets: Mapping[int, TaskTarget]) -> None:
    aliases = {one.alias for one in grant.inputs}
    known = ", ".join(sorted(aliases)) or "none"
    for output, lineage in report.lineage.items():
        _target("report.lineage", output, targets, grant)
        for edge in lineage.edges:
            if edge.source is not None:
                one_of("report.lineage", edge.source, aliases, f"the inputs of job {grant.job} are {known}")


def started(grant: TaskGrant, application_id: str, job_tag: str) -> None:
    """Refuse a tag that is not this attempt's own: whoever comes after stops what runs under it."""
    name("application_id", application_id)
    own = f"noetl-{grant.lease.task_id}-{grant.lease.attempt}"
    if job_tag != own:
        refuse("job_tag", job_tag, f"the tag of this attempt is {own}")
