"""What planning a deploy is about: the files given, what stands already, and what would become of it. Values only."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.language.dag.model import Dag, Job
from noetl.model.stream import Scope

Action = Literal["create", "rebuild", "reuse", "keep"]
"""`reuse`: another generation than the current one, but built whole before, so that nothing is to be done."""
VersionStatus = Literal["building", "ready", "failed", "active", "retired"]


class BundleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is deployed: the DAG and the digests of its files."""

    scope: Scope
    dag: Dag
    bundle_digest: str
    code_digest: str = ""
    yaml_hash: str = ""
    job_hashes: dict[str, str]
    files: dict[str, dict[str, str]] = {}
    """For each job the files it uses and their digests."""


class StandingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the version that is current."""

    job: Job
    job_hash: str
    generation: str
    files: dict[str, str] = {}


class StandingVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version that is current."""

    dag_version_id: str
    jobs: dict[str, StandingJob]
    pointers: dict[str, str] = {}
    publish: dict[str, str] = {}


class StandingDataset(msgspec.Struct, frozen=True, kw_only=True):
    """A registered dataset; `readers` are the jobs of other DAGs' current versions that read it, as `dag.job`."""

    dataset_uuid: str
    name: str
    dag: str
    job: str
    output: int
    published: bool = False
    partition_by: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()


class DagState(msgspec.Struct, frozen=True, kw_only=True):
    """What stands: the current version of the DAG, all its versions, what was built whole, and the registered datasets.

    Of other DAGs only published datasets are needed.
    """

    current: StandingVersion | None = None
    versions: dict[str, VersionStatus] = {}
    complete: frozenset[str] = frozenset()
    datasets: tuple[StandingDataset, ...] = ()
    gone: frozenset[str] = frozenset()
    """Generations whose data were let go, and versions that point to some: neither is built or served again."""


class InputPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An input with the dataset it comes from; as it stands in `job.registered`."""

    alias: str
    dataset_uuid: str
    trigger: bool
    where: dict[str, Any]
    partition_by: tuple[str, ...]


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one job, and why."""

    name: str
    action: Action
    reasons: tuple[str, ...]
    job_hash: str
    generation: str
    previous: str | None
    inputs: tuple[InputPlan, ...]
    outputs: tuple[str, ...]

    @property
    def builds(self) -> bool:
        """Whether its generation has to be built."""
        return self.action in ("create", "rebuild")


class DatasetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset with the generation that readers have now and the one they will have."""

    dataset_uuid: str
    name: str
    job: str
    output: int
    old: str | None
    new: str
    partition_by: tuple[str, ...]


class NameChange(msgspec.Struct, frozen=True, kw_only=True):
    """A published name that comes, goes, or stands for another dataset, once the version is current."""

    name: str
    change: Literal["published", "unpublished", "moved"]
    was: str | None = None
    becomes: str | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset under a name; as it stands in `dataset.registered`."""

    dataset_uuid: str
    name: str
    dag: str
    job: str
    output: int
    published: bool


class DeployPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a deploy would do. With problems it is refused; warnings are only told."""

    dag: str
    dag_version_id: str
    status: VersionStatus | None
    """How far the version is that these files stand for; None if it is new."""
    current: str | None
    jobs: tuple[JobPlan, ...]
    removed: tuple[str, ...]
    datasets: tuple[DatasetPlan, ...]
    publish: dict[str, str]
    names: tuple[NameChange, ...]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether these files are what is current."""
        return self.dag_version_id == self.current

    @property
    def built(self) -> tuple[str, ...]:
        """The jobs whose generations have to be built."""
        return tuple(job.name for job in self.jobs if job.builds)

    @property
    def pointers(self) -> dict[str, str]:
        """The generation of each dataset in this version."""
        return {dataset.dataset_uuid: dataset.new for dataset in self.datasets}


def unpublished_name(dag: str, job: str, output: int) -> str:
    """Return what a dataset is called that is not published."""
    return f"{dag}.{job}.{output}"
