"""The names of what a pipeline makes: what they depend on goes in, the same id for ever comes out. Nothing is drawn.

Equal source on equal inputs has equal ids, so that whatever is done twice is recognised and left alone. Ids are text,
as they stand in events.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final
from uuid import UUID, uuid5

from noetl.model.canonical import canonical_json, sha256_hex
from noetl.model.stream import Scope, Stream

NAMESPACE: Final = UUID("5b69b4cf-f7be-5345-a72e-9ecc3cde3efe")  # uuid5(NAMESPACE_URL, "noetl://datasets")
"""Under which every id here is made. To change it would lose all data that stands."""
_TRIGGER_DIGITS: Final = 16
_AGAIN: Final = 8
_VERSION_BITS: Final = 76
_VERSION_PLACE: Final = 14

VersionTerm = tuple[str, str, str, int]
"""An input's part: alias, generation of the dataset, partition, version."""


def _made(*parts: str) -> str:
    return str(uuid5(NAMESPACE, "/".join(parts)))


def dag_version_id(scope: Scope, dag: str, bundle_digest: str) -> str:
    """Name a version of a DAG by all its files."""
    return _made(scope.tenant_id, scope.organization_id, dag, bundle_digest)


def generation(
    scope: Scope, dag: str, job: str, job_hash: str, upstream: Iterable[str], reset_for: str | None = None
) -> str:
    """Name one build of a job by what it does and by the generations of the jobs it reads in its DAG.

    `reset_for` is the DAG version, for a job that starts anew in each.
    """
    above = ",".join(sorted(set(upstream)))
    return _made(scope.tenant_id, scope.organization_id, dag, job, job_hash, above, reset_for or "")


def dataset_uuid(scope: Scope, dag: str, job: str, output: int) -> str:
    """Name a dataset by who makes it; its generations come and go."""
    return _made(scope.tenant_id, scope.organization_id, dag, job, str(output))


def dataset_version(of_generation: str, output: int) -> str:
    """Name the dataset that one build of a job makes as one of its outputs."""
    return _made(of_generation, str(output))


def storage_location(scope: Scope, of_dataset: str, of_version: str) -> str:
    """Return where in the lake the files of a generation are."""
    return f"{scope.tenant_id}/{scope.organization_id}/datasets/{of_dataset}/gen={of_version}/"


def unused(wanted: str, gone: Container[str]) -> str:
    """Return an id, or the next one after it in a fixed row, that names nothing whose data were let go."""
    while wanted in gone:
        wanted = _made(wanted, "again")
    return wanted


def job_id(of_version: str, job: str) -> str:
    """Name a job of one version of a DAG."""
    return _made(of_version, job)


def task_id(of_generation: str, dedupe_key: str) -> str:
    """Name a task: one generation works one key once, whichever version of the DAG asks."""
    return _made(of_generation, dedupe_key)


def again_id(of_generation: str, dedupe_key: str) -> str:
    """Name a task that an invalidation or a backfill asks for, whatever was done before.

    Its version is another than of all other ids, so that whoever ends it knows without a look-up.
    """
    plain = UUID(task_id(of_generation, dedupe_key))
    return str(UUID(int=(plain.int & ~(0xF << _VERSION_BITS)) | _AGAIN << _VERSION_BITS))


def is_again(of_task: str) -> bool:
    """Tell whether an invalidation or a backfill asked for a task."""
    return of_task[_VERSION_PLACE : _VERSION_PLACE + 1] == f"{_AGAIN:x}"


def dedupe_key(
    partition_key: str, triggers: Iterable[VersionTerm], parts: Iterable[VersionTerm], invalidation: str | None = None
) -> str:
    """Name the work on a partition by the versions of all its inputs, with a mark of those that start it.

    The mark is what `same_start` compares: another version of an input that is only read is other work, yet nothing
    that would have to be done.
    """
    everything = sorted([list(part) for part in parts])
    digest = sha256_hex(canonical_json(everything if invalidation is None else [everything, invalidation]))
    starting = sorted([list(part) for part in triggers])
    mark = sha256_hex(canonical_json(starting if invalidation is None else [starting, invalidation]))
    return f"{partition_key}:{mark[:_TRIGGER_DIGITS]}:{digest}"


def same_start(key: str) -> str:
    """Return the part of a task's key that is equal for tasks started by the same versions."""
    return key.rpartition(":")[0]


def emission_key(execution_id: int) -> str:
    """Name the one task of a source job in a run that was asked for."""
    return f"emission:{execution_id}"


def build_key(of_generation: str) -> str:
    """Name the one task of a source job by which a deploy builds it."""
    return f"build:{of_generation}"


def backfill_key(execution_id: int, partition_key: str) -> str:
    """Name the task of a source job by which a backfill has a partition made."""
    return f"backfill:{execution_id}:{partition_key}"


def memo_key(job_hash: str, partition_key: str, contents: Iterable[tuple[str, str, str]]) -> str:
    """Name what a task reads by contents (alias, partition, digest), so that equal work is recognised as done."""
    return sha256_hex(canonical_json([job_hash, partition_key, sorted([list(part) for part in contents])]))


def wakeup_id(of_task: str, attempt: int) -> str:
    """Name the outbox row that wakes workers for an attempt to come."""
    return _outbox_id(f"task_wakeup:{of_task}:{attempt}")


def route_id(of_version: str, partition_key: str, version: int) -> str:
    """Name the outbox row that routes one version of a partition."""
    return _outbox_id(f"route:{of_version}:{partition_key}:{version}")


def _outbox_id(name: str) -> str:
    # The database makes these itself, with the digest it has.
    return str(UUID(sha256_hex(name.encode())[:32]))


def dag_stream(scope: Scope, dag: str) -> Stream:
    """Return the stream of a DAG: its versions and which of them is current."""
    return scope.stream(f"dag/{dag}")


def dataset_stream(scope: Scope, of_version: str) -> Stream:
    """Return the stream of a generation of a dataset: its schema."""
    return scope.stream(f"dataset/{of_version}")


def partition_stream(scope: Scope, of_version: str, partition_key: str) -> Stream:
    """Return the stream of a partition, whose versions are the partition's."""
    return scope.stream(f"partition/{_made(of_version, partition_key)}")


def task_stream(scope: Scope, of_task: str) -> Stream:
    """Return the stream of a task: its attempts and its end."""
    return scope.stream(f"task/{of_task}")


def invalidation_stream(scope: Scope, execution_id: int) -> Stream:
    """Return the stream of an invalidation, which its run names."""
    return scope.stream(f"invalidation/{execution_id}")


def backfill_stream(scope: Scope, execution_id: int) -> Stream:
    """Return the stream of a backfill, which its run names."""
    return scope.stream(f"backfill/{execution_id}")


def state_stream(scope: Scope, of_generation: str) -> Stream:
    """Return the stream of what a job's operator remembers."""
    return scope.stream(f"state/{of_generation}")
