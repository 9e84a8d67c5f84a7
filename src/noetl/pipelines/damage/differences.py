"""Damaged files of datasets as differences: what looking through them found goes in, a longer report comes out."""

from __future__ import annotations

import msgspec

from noetl.kernel.replay.report import Difference, VerifyReport
from noetl.pipelines.damage.finder import DamagedFile, FilesReport


def with_damage(report: VerifyReport, found: FilesReport) -> VerifyReport:
    """Return a report that also says which files are not what was committed."""
    differences = [*report.differences, *map(_difference, found.damaged)]
    differences += [
        Difference(where="dataset", id=told, field="manifest or file", expected="readable", found="unreadable")
        for told in found.unreadable
    ]
    return msgspec.structs.replace(
        report, differences=differences, files=found.files, file_bytes=found.bytes, files_hashed=found.hashed
    )


def _difference(one: DamagedFile) -> Difference:
    damage = one.damage
    expected: dict[str, object] = {"sha256": damage.expected_sha256, "bytes": damage.expected_bytes}
    found: dict[str, object] | None = {"sha256": damage.found_sha256, "bytes": damage.found_bytes}
    if damage.why == "missing":
        found = None
    return Difference(
        where="dataset",
        id=f"{one.dataset}, generation {one.dataset_version}, partition {one.partition_key}",
        field=f"file {one.entry.path} ({one.remedy()})",
        expected={name: value for name, value in expected.items() if value is not None},
        found=None if found is None else {name: value for name, value in found.items() if value is not None},
    )
