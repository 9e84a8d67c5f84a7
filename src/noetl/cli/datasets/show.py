"""What `noetl datasets` says of datasets and of what stands in them: as text for a person, as facts for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.cli.terminal.tables import rendered

if TYPE_CHECKING:
    from noetl.model.task import CheckResult
    from noetl.pipelines.datasets.dataset_reader import Build, ListedDataset, Seen

_SHOWN_PARTITIONS = 50


class Shown(NamedTuple):
    """One dataset at one point, with all that is known about it."""

    seen: Seen
    builds: list[Build]
    checks: dict[str, tuple[CheckResult, ...]]
    """By the task that committed."""
    readers: tuple[str, ...] = ()
    """The roles that read it; none where the whole organization does."""


def size_text(size: float) -> str:
    """Return bytes in the unit a person reads most easily."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def listed_facts(one: ListedDataset) -> dict[str, Any]:
    """Return a dataset of the list as plain values."""
    dataset = one.dataset
    return {
        "name": dataset.name,
        "dataset_uuid": dataset.dataset_uuid,
        "dag": dataset.dag,
        "job": dataset.job,
        "output": dataset.output,
        "published": dataset.published,
        "generation": one.dataset_version,
        "partitions": one.partitions,
        "rows": one.rows,
        "bytes": one.bytes,
        "last_commit": one.last_commit and one.last_commit.isoformat(),
    }


def listed_table(found: Sequence[ListedDataset]) -> str:
    """Return the list as a table."""
    rows = [
        (
            one.dataset.name,
            f"{one.dataset.dag}.{one.dataset.job}",
            one.dataset_version[:8] if one.dataset_version else "-",
            str(one.partitions),
            f"{one.rows:,}",
            size_text(one.bytes),
            f"{one.last_commit:%Y-%m-%d %H:%M:%S}" if one.last_commit else "-",
        )
        for one in found
    ]
    return rendered(("dataset", "made by", "generation", "partitions", "rows", "size", "last commit"), rows)


def seen_facts(seen: Seen) -> dict[str, Any]:
    """Return what was read as plain values, enough to read it again and to prove that it is the same."""
    return {
        "name": seen.view.dataset.name,
        "dataset_uuid": seen.view.dataset.dataset_uuid,
        "generation": seen.generation.dataset_version,
        "mark": seen.mark.token(),
        "checksum": seen.view.checksum,
        "rows": seen.view.rows,
        "schema": [{"name": one.name, "type": one.type, "nullable": one.nullable} for one in seen.schema],
    }


def shown_facts(shown: Shown) -> dict[str, Any]:
    """Return a dataset as plain values."""
    dataset = shown.seen.view.dataset
    return {
        **seen_facts(shown.seen),
        "dag": dataset.dag,
        "job": dataset.job,
        "output": dataset.output,
        "published": dataset.published,
        "readers": list(shown.readers),
        "partition_by": list(shown.seen.generation.partition_by),
        "storage_location": shown.seen.generation.storage_location,
        "partitions": [
            {
                "partition_key": part.partition_key,
                "version": part.version,
                "rows": part.rows,
                "bytes": part.bytes,
                "files": part.files,
                "content_digest": part.content_digest,
                "task_id": part.task_id,
                "committed_at": part.committed_at.isoformat(),
            }
            for part in shown.seen.view.partitions
        ],
        "generations": [
            {
                "generation": build.generation.dataset_version,
                "use": build.use,
                "created_at": build.generation.created_at.isoformat(),
                "dag_versions": list(build.dag_versions),
            }
            for build in shown.builds
        ],
        "checks": [
            {"task_id": task, "label": one.label, "passed": one.passed, "severity": one.severity, "detail": one.detail}
            for task, results in shown.checks.items()
            for one in results
        ],
    }


def shown_text(shown: Shown) -> str:
    """Return a dataset as text."""
    seen = shown.seen
    dataset, parts = seen.view.dataset, seen.view.partitions
    by = f", partitioned by {', '.join(seen.generation.partition_by)}" if seen.generation.partition_by else ""
    size = size_text(sum(part.bytes for part in parts))
    text = f"{dataset.name}, output {dataset.output} of job {dataset.job} in DAG {dataset.dag}{by}\n"
    text += f"generation {seen.generation.dataset_version}: {seen.view.rows:,} rows, {size}\n"
    readers = ", ".join(shown.readers) or "everybody in the organization"
    text += f"checksum   {seen.view.checksum}\nas of      {seen.mark.token()}\nread by    {readers}\n\n"
    columns = [(one.name, one.type, "" if one.nullable else "not null") for one in seen.schema]
    text += rendered(("column", "type", ""), columns) + "\n" + _partitions(shown) + "\n" + _builds(shown)
    checks = [
        (one.label, "passed" if one.passed else f"failed ({one.severity})", task[:8], one.detail)
        for task, results in shown.checks.items()
        for one in results
    ]
    return text + ("\n" + rendered(("check", "came out", "task", "detail"), checks) if checks else "")


def _partitions(shown: Shown) -> str:
    parts = shown.seen.view.partitions
    rows = [
        (
            part.partition_key,
            str(part.version),
            f"{part.rows:,}",
            size_text(part.bytes),
            str(part.files),
            part.task_id[:8],
            f"{part.committed_at:%Y-%m-%d %H:%M:%S}",
        )
        for part in parts[:_SHOWN_PARTITIONS]
    ]
    table = rendered(("partition", "version", "rows", "size", "files", "task", "committed"), rows)
    more = len(parts) - _SHOWN_PARTITIONS
    return table if more <= 0 else f"{table}{more} more partitions; --json prints all\n"


def _builds(shown: Shown) -> str:
    rows = [
        (
            build.generation.dataset_version[:8],
            build.use,
            f"{build.generation.created_at:%Y-%m-%d %H:%M:%S}",
            ", ".join(version[:8] for version in build.dag_versions) or "-",
        )
        for build in shown.builds
    ]
    return rendered(("generation", "use", "created", "DAG versions"), rows)
