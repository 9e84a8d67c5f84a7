"""What a deploy would do: a DAG's files and what stands go in, a plan with its reasons comes out. Nothing is done.

A generation is named by what it is made of, so equal files find the data they made before, and only what differs, and
what reads it, is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from noetl.language.dag.model import Input, Job
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.deploy.problems import partition_columns, problems, published, warnings
from noetl.pipelines.plan.deploy.reasons import changed_settings, differences
from noetl.pipelines.plan.deploy.values import (
    Action,
    BundleFacts,
    DagState,
    DatasetPlan,
    DeployPlan,
    InputPlan,
    JobPlan,
    NameChange,
    Registration,
    StandingDataset,
    StandingJob,
    unpublished_name,
)


def deploy_plan(facts: BundleFacts, state: DagState) -> DeployPlan:
    """Plan a deploy."""
    dag, scope = facts.dag, facts.scope
    version = identity.unused(identity.dag_version_id(scope, dag.name, facts.bundle_digest), state.gone)
    jobs: dict[str, JobPlan] = {}
    for job in dag.jobs:
        jobs[job.name] = _job_plan(facts, state, job, version, jobs)
    publish = {
        name: identity.dataset_uuid(scope, dag.name, source.job or "", source.output)
        for name, source in sorted(dag.publish.items())
    }
    before = state.current.jobs if state.current is not None else {}
    return DeployPlan(
        dag=dag.name,
        dag_version_id=version,
        status=state.versions.get(version),
        current=state.current.dag_version_id if state.current is not None else None,
        jobs=tuple(jobs.values()),
        removed=tuple(sorted(before.keys() - jobs.keys())),
        datasets=tuple(_datasets(facts, state, jobs, publish)),
        publish=publish,
        names=tuple(_name_changes(publish, state.current.publish if state.current is not None else {})),
        problems=tuple(problems(facts, state)),
        warnings=tuple(warnings(facts, state)),
    )


def registrations(plan: DeployPlan, state: DagState) -> list[Registration]:
    """Return what a deploy registers: new datasets, and new names for those that had none.

    A name that another dataset of the DAG still has is left to it until the version is current.
    """
    standing = {one.dataset_uuid: one for one in state.datasets}
    taken = {one.name: one.dataset_uuid for one in state.datasets}
    found = []
    for dataset in plan.datasets:
        free = taken.get(dataset.name, dataset.dataset_uuid) == dataset.dataset_uuid
        named = dataset.name in plan.publish and free
        before = standing.get(dataset.dataset_uuid)
        if before is None or (named and not before.published):
            name = dataset.name if named else unpublished_name(plan.dag, dataset.job, dataset.output)
            found.append(_registration(plan.dag, dataset.dataset_uuid, name, dataset.job, dataset.output, named=named))
    return found


def renamings(dag: str, publish: Mapping[str, str], datasets: Iterable[StandingDataset]) -> list[Registration]:
    """Return what has to be registered anew so that a DAG's datasets are called as the version that becomes current says."""
    names = {dataset: name for name, dataset in publish.items()}
    found = []
    for one in datasets:
        name = names.get(one.dataset_uuid, unpublished_name(dag, one.job, one.output))
        named = one.dataset_uuid in names
        if one.dag == dag and (one.name, one.published) != (name, named):
            found.append(_registration(dag, one.dataset_uuid, name, one.job, one.output, named=named))
    # Names are given up before they are taken, so that at no moment two datasets have one.
    return sorted(found, key=lambda one: (one.published, one.name))


def _registration(dag: str, dataset: str, name: str, job: str, output: int, *, named: bool) -> Registration:
    return Registration(dataset_uuid=dataset, name=name, dag=dag, job=job, output=output, published=named)


def _job_plan(facts: BundleFacts, state: DagState, job: Job, version: str, above: Mapping[str, JobPlan]) -> JobPlan:
    scope, dag = facts.scope, facts.dag.name
    job_hash = facts.job_hashes[job.name]
    named = identity.generation(
        scope,
        dag,
        job.name,
        job_hash,
        [above[name].generation for name in job.upstream],
        version if job.reset_outputs else None,
    )
    generation = identity.unused(named, state.gone)
    before = state.current.jobs.get(job.name) if state.current is not None else None
    action: Action
    if before is not None and before.generation == generation:
        action = "keep"
    elif generation in state.complete:
        action = "reuse"
    else:
        action = "create" if before is None else "rebuild"
    return JobPlan(
        name=job.name,
        action=action,
        reasons=tuple(_reasons(facts, job, job_hash, action, before, above)),
        job_hash=job_hash,
        generation=generation,
        previous=before.generation if before is not None else None,
        inputs=tuple(_input(facts, state, one) for one in job.inputs),
        outputs=tuple(identity.dataset_uuid(scope, dag, job.name, output) for output in range(job.outputs)),
    )


def _reasons(
    facts: BundleFacts,
    job: Job,
    job_hash: str,
    action: Action,
    before: StandingJob | None,
    above: Mapping[str, JobPlan],
) -> list[str]:
    found = [] if action != "reuse" else ["built before, and its data still stand"]
    if before is None:
        return found or ["new"]
    if action == "keep":
        settings = changed_settings(before.job, job)
        return [f"unchanged but for {', '.join(settings)}, which needs no build" if settings else "unchanged"]
    if before.job_hash != job_hash:
        files = facts.files.get(job.name, {})
        found += differences(before.job, job, before.files, files) or ["its definition changed"]
    for name in job.upstream:
        upstream = above[name]
        if upstream.generation != upstream.previous:
            what = {"create": "new", "rebuild": "rebuilt", "reuse": "taken from before", "keep": "kept"}
            found.append(f"reads {name}, which is {what[upstream.action]}")
    if job.reset_outputs:
        found.append("starts anew in each version (reset_outputs)")
    elif before.job.reset_outputs:
        found.append("starts anew in each version no longer (reset_outputs)")
    return found or ["reads other jobs than before"]


def _input(facts: BundleFacts, state: DagState, one: Input) -> InputPlan:
    source = one.source
    if source.job is not None:
        dataset = identity.dataset_uuid(facts.scope, facts.dag.name, source.job, source.output)
    else:
        found = published(state, source.dataset)
        dataset = found.dataset_uuid if found is not None else ""
    return InputPlan(
        alias=one.alias,
        dataset_uuid=dataset,
        trigger=one.trigger,
        where=dict(one.where),
        partition_by=partition_columns(facts.dag, state, source.job, source.dataset),
    )


def _datasets(
    facts: BundleFacts, state: DagState, jobs: Mapping[str, JobPlan], publish: Mapping[str, str]
) -> Iterable[DatasetPlan]:
    names = {dataset: name for name, dataset in publish.items()}
    pointers = state.current.pointers if state.current is not None else {}
    for job in facts.dag.jobs:
        for output, dataset in enumerate(jobs[job.name].outputs):
            yield DatasetPlan(
                dataset_uuid=dataset,
                name=names.get(dataset, unpublished_name(facts.dag.name, job.name, output)),
                job=job.name,
                output=output,
                old=pointers.get(dataset),
                new=identity.dataset_version(jobs[job.name].generation, output),
                partition_by=job.partition_by,
            )


def _name_changes(new: Mapping[str, str], old: Mapping[str, str]) -> Iterable[NameChange]:
    for name in sorted(new.keys() | old.keys()):
        was, becomes = old.get(name), new.get(name)
        if was is None:
            yield NameChange(name=name, change="published", becomes=becomes)
        elif becomes is None:
            yield NameChange(name=name, change="unpublished", was=was)
        elif was != becomes:
            yield NameChange(name=name, change="moved", was=was, becomes=becomes)
