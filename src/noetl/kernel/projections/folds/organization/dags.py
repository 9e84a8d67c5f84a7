"""The rows of DAGs: versions, pointer sets, jobs, datasets and generations, from the events of `dag/<dag>`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.kernel.projections.folds.fold import moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, number, part, payload
from noetl.model.event import Event


def _version_created(tables: Tables, event: Event) -> None:
    meta, version = event.meta, _version(event)
    pointers = part(event, "pointers", {})
    before = tables["dag_version"].get(version)
    for dataset in before["pointers"] if before else ():
        del tables["dag_version_dataset"][f"{version}|{identity(dataset)}"]
    for dataset, generation in pointers.items():
        tables.put(
            "dag_version_dataset",
            {
                "dag_version_id": version,
                "dataset_uuid": identity(dataset),
                "dataset_version": identity(generation),
            },
        )
    tables.put(
        "dag_version",
        {
            "dag_version_id": version,
            "dag": meta.get("dag"),
            "yaml_hash": meta.get("yaml_hash"),
            "bundle_digest": meta.get("bundle_digest"),
            "code_digest": meta.get("code_digest"),
            "bundle_ref": payload(event),
            "pointers": pointers,
            "publish": part(event, "publish", {}),
            "built": part(event, "built", []),
            "status": "building",
            "error": None,
            "deploy_execution_id": str(event.execution_id),
            "created_at": moment(event.ingest_time),
            "ready_at": None,
            "activated_at": None,
        },
    )


def _job_registered(tables: Tables, event: Event) -> None:
    meta, inputs = event.meta, part(event, "inputs", [])
    tables.put(
        "job",
        {
            "job_id": identity(meta.get("job_id")),
            "dag_version_id": _version(event),
            "name": event.node_name,
            "generation": identity(meta.get("generation")),
            **{name: meta.get(name) for name in _JOB_FIELDS},
            "timeout_seconds": number(meta.get("timeout_seconds")),
            "lease_seconds": number(meta.get("lease_seconds")),
            "definition": part(event, "definition", {}),
            "inputs": inputs,
            "input_datasets": sorted({str(identity(one["dataset_uuid"])) for one in inputs}),
            "output_datasets": [identity(one) for one in part(event, "outputs", [])],
        },
    )


def _dataset_registered(tables: Tables, event: Event) -> None:
    meta, dataset = event.meta, str(identity(event.meta.get("dataset_uuid")))
    known = tables["dataset"].get(dataset)
    named = {"name": meta.get("name"), "published": bool(meta.get("published"))}
    if known is not None:
        known |= named
        return
    tables.put(
        "dataset",
        {
            "dataset_uuid": dataset,
            **named,
            "producer_dag": meta.get("dag"),
            "producer_job": meta.get("job"),
            "producer_output_index": meta.get("output"),
            "read_roles": [],
            "created_at": moment(event.ingest_time),
        },
    )


def _generation_created(tables: Tables, event: Event) -> None:
    meta, generation = event.meta, str(identity(event.meta.get("dataset_version")))
    if generation in tables["dataset_version"]:
        return  # another version of the DAG came to the same generation
    tables.put(
        "dataset_version",
        {
            "dataset_version": generation,
            "dataset_uuid": identity(meta.get("dataset_uuid")),
            "generation": identity(meta.get("generation")),
            "config_hash": meta.get("config_hash"),
            "storage_location": meta.get("storage_location"),
            "partition_by": part(event, "partition_by", []),
            "range_start": meta.get("range_start"),
            "range_end": meta.get("range_end"),
            "created_at": moment(event.ingest_time),
        },
    )


def _ready(tables: Tables, event: Event) -> None:
    _change(tables, _version(event), status="ready", ready_at=moment(event.ingest_time), error=None)


def _build_failed(tables: Tables, event: Event) -> None:
    _change(tables, _version(event), status="failed", error=event.error)


def _moved(tables: Tables, event: Event) -> None:
    at = moment(event.ingest_time)
    _change(tables, str(identity(event.meta.get("previous"))), status="retired")
    _change(tables, _version(event), status="active", activated_at=at)
    dag = event.stream_id.removeprefix("dag/")
    tables.put("dag_current_version", {"dag": dag, "dag_version_id": _version(event), "updated_at": at})


def _change(tables: Tables, version: str, **changes: Any) -> None:
    row = tables["dag_version"].get(version)
    if row is not None:
        row |= changes


def _version(event: Event) -> str:
    return str(identity(event.meta.get("dag_version_id")))


_JOB_FIELDS: Final = (
    "dag",
    "job_hash",
    "activation",
    "runtime",
    "operator",
    "execution_strategy",
    "update_strategy",
    "max_concurrency",
    "max_attempts",
)

DAG_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "dag.version_created": _version_created,
    "job.registered": _job_registered,
    "dataset.registered": _dataset_registered,
    "dataset.generation_created": _generation_created,
    "dag.ready": _ready,
    "dag.build_failed": _build_failed,
    "dag.activated": _moved,
    "dag.rolled_back": _moved,
}
