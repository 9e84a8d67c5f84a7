"""Reports of tasks that their grant does not allow: each is refused with its field (INV-190)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.errors import ReportRefused
from noetl.model.dataset import Field, FileEntry
from noetl.model.lineage import Edge, Lineage
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.task import CheckResult, PartitionWrite, TaskGrant, TaskInput, TaskLease, TaskReport, TaskTarget
from noetl.pipelines.tasks.reports import TOLD_BYTES, end, started

DIGEST = "a" * 64
BUNDLE = PayloadRef(
    uri=payload_uri("default", "default", DIGEST),
    sha256=DIGEST,
    stored_sha256=DIGEST,
    media_type="application/json",
    bytes=1,
)
TASK = "5a2b6c0e-0000-4000-8000-000000000001"


def target(output: int, **fields: Any) -> TaskTarget:
    return TaskTarget(
        output=output, dataset_uuid="d", dataset_version="v", dataset_name="orders", location="orders/v/", **fields
    )


GRANT = TaskGrant(
    lease=TaskLease(task_id=TASK, attempt=2, token="t", seconds=30.0),
    execution_id=1, job_id="j", dag="shop", job="orders", dag_version_id="1", operator="sql", runtime="spark",
    partition_key="day=1", strategy=None, config={}, bundle=BUNDLE, code_digest="c",
    inputs=(TaskInput(alias="raw", dataset_uuid="r", dataset_version="v", parts=()),),
    targets=(target(0, partition_by=("day",)), target(1)),
    checks=({"kind": "not_null", "columns": ["day"]}, {"kind": "row_count", "min": 1, "severity": "warn"}),
)  # fmt: skip
FILE = FileEntry(path="orders/v/day=1/part-0.parquet", bytes=10, rows=2, sha256=DIGEST)
WRITE = PartitionWrite(output=0, partition_key="day=1", schema=(Field("day", "string"),), files=(FILE,), base_version=0)
CHECK = CheckResult(label="not_null(day)", passed=True, severity="block")
GOOD = TaskReport(status="ok", writes=(WRITE,), checks=(CHECK,))


def report(**fields: Any) -> TaskReport:
    return msgspec.structs.replace(GOOD, **fields)


def write(**fields: Any) -> TaskReport:
    return report(writes=(msgspec.structs.replace(WRITE, **fields),))


def file(**fields: Any) -> TaskReport:
    return write(files=(msgspec.structs.replace(FILE, **fields),))


def check(**fields: Any) -> TaskReport:
    return report(checks=(msgspec.structs.replace(CHECK, **fields),))


def edges(*sources: str | None, output: int = 0) -> TaskReport:
    made = tuple(Edge("day", source, "day", "direct") for source in sources)
    return report(lineage={output: Lineage("sql", made)})


FORGED: list[tuple[str, TaskReport]] = [
    ("report.writes[0].output", write(output=7)),
    ("report.writes[0].partition_key", write(partition_key="day")),
    ("report.writes[0].partition_key", write(partition_key="month=1")),
    ("report.writes[0].partition_key", write(partition_key="all/../../day=1")),
    ("report.writes[0].partition_key", write(output=1)),
    ("report.writes[0].base_version", write(base_version=-1)),
    ("report.writes[0].schema", write(schema=(Field("day", "string"), Field("day", "int")))),
    ("report.writes[0].schema.day", write(schema=(Field("day", ""),))),
    ("report.writes[1].files.path", report(writes=(WRITE, msgspec.structs.replace(WRITE, partition_key="day=2")))),
    ("report.writes[0].files.path", write(files=(FILE, FILE))),
    ("report.writes[1].partition_key", report(writes=(WRITE, msgspec.structs.replace(WRITE, files=())))),
    ("report.writes[0].files.path", file(path="orders/other/part-0.parquet")),
    ("report.writes[0].files.path", file(path="orders/v/../other/part-0.parquet")),
    ("report.writes[0].files.sha256", file(sha256="A" * 64)),
    ("report.writes[0].files.bytes", file(bytes=-1)),
    ("report.writes[0].files.bytes", file(bytes=0)),
    ("report.writes[0].files.rows", file(rows=-1)),
    ("report.dropped", report(dropped=((9, "day=1"),))),
    ("report.dropped", report(dropped=((0, "month=1"),))),
    ("report.checks", report(checks=())),
    ("report.checks", check(output=1)),
    ("report.checks[0].severity", check(severity="warn")),
    ("report.checks[0].violations", check(violations=-1, passed=False)),
    ("report.checks[0].passed", check(violations=3)),
    ("report.checks[0].label", check(label="")),
    ("report.lineage", edges("raw", "another's")),
    ("report.lineage", edges("raw", output=7)),
    ("report.metrics", report(metrics={"text": "x" * TOLD_BYTES})),
    ("report.error_kind", report(error_kind="")),
]


@pytest.mark.parametrize(("field", "forged"), FORGED, ids=[f"{n}-{field}" for n, (field, _) in enumerate(FORGED)])
def test_what_a_task_cannot_come_to_is_refused(field: str, forged: TaskReport) -> None:
    """INV-190"""
    with pytest.raises(ReportRefused) as refused:
        end(GRANT, forged)
    assert refused.value.message.startswith(f"{field} is "), refused.value.message
    assert refused.value.details["field"] == field


def test_what_a_task_may_come_to_is_taken() -> None:
    assert end(GRANT, GOOD) == []
    assert end(GRANT, edges("raw", None)) == []
    assert end(GRANT, check(passed=False, violations=3)) == []
    assert end(GRANT, report(dropped=((0, "day=2"),), metrics={"rows": 2})) == []


@pytest.mark.parametrize("tag", [f"noetl-{TASK}-1", "noetl-another-2", "", "x" * 2000])
def test_a_tag_of_another_attempt_is_refused(tag: str) -> None:
    """INV-190: whoever comes after stops what runs under it."""
    with pytest.raises(ReportRefused, match="job_tag is "):
        started(GRANT, "app", tag)
    started(GRANT, "app", f"noetl-{TASK}-2")
