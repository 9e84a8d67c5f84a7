"""Puts what is known about an attempt into an OpenLineage event: facts go in, one line of JSON comes out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    datasource_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
)
from openlineage.client.serde import Serde

from noetl import __version__
from noetl.model.event import time_text
from noetl.model.lineage import Edge, Lineage
from noetl.model.stream import Scope
from noetl.services.openlineage.facts import DatasetFacts, OutputFacts, TaskFacts, parent_id, run_id

PRODUCER: Final = f"https://noetl.io/releases/{__version__}"
_SUBTYPES: Final = {"direct": "IDENTITY", "transformed": "TRANSFORMATION", "aggregated": "AGGREGATION"}


def line_of(facts: TaskFacts) -> str:
    """Return an event as one line of JSON; the same facts give the same bytes."""
    return Serde.to_json(event_of(facts))


def event_of(facts: TaskFacts) -> RunEvent:
    """Return what became of an attempt."""
    namespace = namespace_of(facts.scope)
    return RunEvent(
        eventTime=time_text(facts.time),
        producer=PRODUCER,
        eventType=RunState[facts.state],
        run=Run(runId=run_id(facts.scope, facts.task_id, facts.attempt), facets=_run_facets(facts, namespace)),
        job=Job(
            namespace=namespace,
            name=f"{facts.dag}.{facts.job}",
            facets={
                "jobType": job_type_job.JobTypeJobFacet(
                    processingType="BATCH", integration="NOETL", jobType="JOB", producer=PRODUCER
                )
            },
        ),
        inputs=[InputDataset(namespace=namespace, name=one.name, facets=_dataset_facets(one)) for one in facts.inputs],
        outputs=[_output(one, facts.names, namespace) for one in facts.outputs],
    )


def namespace_of(scope: Scope) -> str:
    """Return where the names of an organization's jobs and datasets hold."""
    return f"noetl/{scope.tenant_id}/{scope.organization_id}"


def _run_facets(facts: TaskFacts, namespace: str) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "nominalTime": nominal_time_run.NominalTimeRunFacet(
            nominalStartTime=time_text(facts.nominal), producer=PRODUCER
        ),
        "parent": parent_run.ParentRunFacet(
            run=parent_run.Run(runId=parent_id(facts.scope, facts.execution_id)),
            job=parent_run.Job(namespace=namespace, name=facts.dag),
            producer=PRODUCER,
        ),
    }
    if facts.error is not None:
        language = "SQL" if facts.operator == "spark_sql" else "PYTHON"
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=facts.error, programmingLanguage=language, producer=PRODUCER
        )
    return facets


def _dataset_facets(one: DatasetFacts) -> dict[str, DatasetFacet]:
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=field.name, type=field.type, ordinal_position=place + 1)
        for place, field in enumerate(one.schema)
    ]
    facets: dict[str, DatasetFacet] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(name="noetl", uri=one.location, producer=PRODUCER),
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=one.dataset_version, producer=PRODUCER
        ),
    }
    if fields:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)
    return facets


def _output(one: OutputFacts, names: Mapping[str, DatasetFacts], namespace: str) -> OutputDataset:
    facets = _dataset_facets(one.dataset)
    if one.lineage is not None:
        facets["columnLineage"] = _column_lineage(one.lineage, names, namespace)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=one.rows, size=one.bytes, producer=PRODUCER
    )
    return OutputDataset(
        namespace=namespace, name=one.dataset.name, facets=facets, outputFacets={"outputStatistics": statistics}
    )


def _column_lineage(
    lineage: Lineage, names: Mapping[str, DatasetFacts], namespace: str
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    columns = dict.fromkeys(edge.column for edge in lineage.edges if edge.column is not None)
    fields = {
        column: column_lineage_dataset.Fields(
            inputFields=[one for edge in lineage.of(column) for one in _input_fields(edge, names, namespace)]
        )
        for column in columns
    }
    indirect = [one for edge in lineage.indirect for one in _input_fields(edge, names, namespace)]
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields, dataset=indirect, producer=PRODUCER)


def _input_fields(
    edge: Edge, names: Mapping[str, DatasetFacts], namespace: str
) -> list[column_lineage_dataset.InputField]:
    """Return the columns an edge comes from: all of an input's where it is not told which."""
    source = None if edge.source is None else names.get(edge.source)
    if source is None:
        return []
    whole = [field.name for field in source.schema]
    columns = whole if edge.source_column is None else [edge.source_column]
    transformation = column_lineage_dataset.Transformation(
        type="INDIRECT" if edge.kind == "indirect" else "DIRECT",
        subtype=_SUBTYPES.get(edge.kind),
        description=edge.kind,
    )
    return [
        column_lineage_dataset.InputField(
            namespace=namespace, name=source.name, field=column, transformations=[transformation]
        )
        for column in columns
    ]
