"""What speaks against a deploy: a DAG and what stands go in, all problems and warnings come out at once."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import msgspec

from noetl.language.dag.model import Dag, Job
from noetl.pipelines.plan.deploy.values import BundleFacts, DagState, StandingDataset

MAX_OUTPUTS: Final = 400
"""Outputs of one DAG: all pointers of a version stand in one event."""
MAX_DEFINITION: Final = 48 * 1024
"""Bytes of one job's definition, which stands in one event."""


def problems(facts: BundleFacts, state: DagState) -> list[str]:
    """Return why this cannot be deployed; empty when it can."""
    dag = facts.dag
    found = []
    outputs = sum(job.outputs for job in dag.jobs)
    if outputs > MAX_OUTPUTS:
        found.append(f"DAG {dag.name} has {outputs} outputs and may have {MAX_OUTPUTS}; split it into several DAGs")
    for job in dag.jobs:
        size = len(msgspec.json.encode(job))
        if size > MAX_DEFINITION:
            found.append(f"job {job.name}: its definition has {size:,} bytes; move its text into files beside the DAG")
        found += _unknown_inputs(dag, job, state)
        found += _undeclared_columns(job)
    return found + list(_name_problems(dag, state))


def warnings(facts: BundleFacts, state: DagState) -> list[str]:
    """Return what will surprise those who deploy this."""
    dag = facts.dag
    found: list[str] = []
    for job in dag.jobs:
        if job.execution_strategy == "PerUpdate" and job.partition_by:
            found += _lookups(dag, job, state)
    return found + list(_narrowed(dag, state))


def partition_columns(dag: Dag, state: DagState, job: str | None, dataset: str | None) -> tuple[str, ...]:
    """Return the partition columns of what an input comes from."""
    if job is not None:
        return dag.job(job).partition_by
    found = published(state, dataset)
    return () if found is None else found.partition_by


def published(state: DagState, name: str | None) -> StandingDataset | None:
    """Find a published dataset by its name."""
    return next((one for one in state.datasets if one.published and one.name == name), None)


def _unknown_inputs(dag: Dag, job: Job, state: DagState) -> Iterator[str]:
    for one in job.inputs:
        name = one.source.dataset
        if name is None:
            continue
        standing = published(state, name)
        own = dag.publish.get(name)
        if own is not None or (standing is not None and standing.dag == dag.name):
            producer = own.job if own is not None else standing.job if standing is not None else None
            yield f"job {job.name} reads the dataset {name}, which this DAG makes itself; read the job {producer} instead"
        elif standing is None:
            near = get_close_matches(name, [known.name for known in state.datasets if known.published], n=1)
            hint = f"; did you mean {near[0]}?" if near else "; deploy the DAG that publishes it first"
            yield f"job {job.name} reads the dataset {name}, which no DAG publishes{hint}"


def _undeclared_columns(job: Job) -> Iterator[str]:
    declared = {column.name for column in job.schema.columns}
    if not declared or job.schema.evolve != "refuse":
        return
    for field in ("partition_by", "unique_key"):
        for column in getattr(job, field):
            if column not in declared:
                yield f"job {job.name}: {field} names the column {column}, which its schema does not have"


def _name_problems(dag: Dag, state: DagState) -> Iterator[str]:
    for name in dag.publish:
        holder = next((one for one in state.datasets if one.name == name), None)
        if holder is not None and holder.dag != dag.name:
            yield (
                f"publish: the name {name} belongs to job {holder.job} of DAG {holder.dag}; "
                "a dataset has one producer, so choose another name"
            )
    first: dict[tuple[str | None, int], str] = {}
    for name, source in dag.publish.items():
        other = first.setdefault((source.job, source.output), name)
        if other != name:
            yield f"publish: {other} and {name} name the same output of job {source.job}; a dataset has one name"
    for one in state.datasets:
        if one.dag == dag.name and one.published and one.readers and one.name not in dag.publish:
            yield f"publish: {one.name} is read by {', '.join(one.readers)}; it can go once nobody reads it"


def _lookups(dag: Dag, job: Job, state: DagState) -> Iterator[str]:
    """Name the inputs whose changes start nothing, though they seem to."""
    wanted = set(job.partition_by)
    whole = [
        one.alias
        for one in job.inputs
        if one.trigger and not wanted <= set(partition_columns(dag, state, one.source.job, one.source.dataset))
    ]
    if whole and len(whole) < sum(one.trigger for one in job.inputs):
        yield (
            f"job {job.name}: {', '.join(whole)} is not partitioned by {', '.join(job.partition_by)}; "
            "per update it is looked up whole, and its changes alone start nothing"
        )


def _narrowed(dag: Dag, state: DagState) -> Iterator[str]:
    """Name the columns that other DAGs may read and that will be gone or of another type."""
    if state.current is None:
        return
    for name, source in dag.publish.items():
        standing = published(state, name)
        before = state.current.jobs.get(source.job or "")
        if standing is None or not standing.readers or before is None:
            continue
        columns = {column.name: column.type for column in dag.job(before.job.name).schema.columns}
        for column in before.job.schema.columns:
            if columns and columns.get(column.name) != column.type:
                how = f"becomes {columns[column.name]}" if column.name in columns else "goes"
                yield f"publish: {name}.{column.name} {how}, and {', '.join(standing.readers)} reads {name}"
