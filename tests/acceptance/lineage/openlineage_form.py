"""What an OpenLineage run event must look like: the core of the standard, and each facet as the client's classes declare it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attr
import jsonschema
from openlineage.client.facet_v2 import (
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

_FACETS: Final[dict[str, type[Any]]] = {
    "schema": schema_dataset.SchemaDatasetFacet,
    "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet,
    "dataSource": datasource_dataset.DatasourceDatasetFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "nominalTime": nominal_time_run.NominalTimeRunFacet,
    "parent": parent_run.ParentRunFacet,
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
}
_NAMED: Final = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {"namespace": {"type": "string"}, "name": {"type": "string", "minLength": 1}},
}
_EVENT: Final = {
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "run", "job", "eventType"],
    "additionalProperties": False,
    "properties": {
        "eventTime": {"type": "string"},
        "producer": {"type": "string", "pattern": "^https?://"},
        "schemaURL": {"type": "string", "pattern": "OpenLineage.json#/\\$defs/RunEvent$"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "run": {
            "type": "object",
            "required": ["runId"],
            "additionalProperties": False,
            "properties": {"runId": {"type": "string"}, "facets": {"type": "object"}},
        },
        "job": {**_NAMED, "properties": {**_NAMED["properties"], "facets": {"type": "object"}}},  # type: ignore[dict-item]
        "inputs": {"type": "array", "items": _NAMED},
        "outputs": {"type": "array", "items": _NAMED},
    },
}


def assert_sound(event: dict[str, Any]) -> None:
    """Fail unless an event is what the standard says."""
    jsonschema.validate(event, _EVENT)
    assert str(UUID(event["run"]["runId"])) == event["run"]["runId"]
    assert datetime.fromisoformat(event["eventTime"].replace("Z", "+00:00")).tzinfo is not None
    every = [event["run"].get("facets", {}), event["job"].get("facets", {})]
    for dataset in [*event.get("inputs", []), *event.get("outputs", [])]:
        every += [dataset.get(name, {}) for name in ("facets", "inputFacets", "outputFacets")]
    for facets in every:
        for name, facet in facets.items():
            assert re.match("https?://", facet["_producer"]), name
            assert re.search(r"\$defs/", facet["_schemaURL"]), name
            _built(_FACETS[name], {key: value for key, value in facet.items() if not key.startswith("_")})


def _built(kind: type[Any], fields: dict[str, Any]) -> Any:
    """Build a facet of the client's own class: what it does not know or misses raises, and so does what it forbids."""
    known = {one.name for one in attr.fields(kind)}
    assert fields.keys() <= known, f"{kind.__name__} has no {sorted(fields.keys() - known)}"
    return kind(**fields)
