"""The JSON Schema of DAGs, made from the same tables the parser reads."""

from __future__ import annotations

from typing import Any

from noetl.dag.grammar_root import DAG, JOB
from noetl.dag.operators import OPERATORS
from noetl.playbook.schema import record_schema


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a DAG."""
    schema = record_schema(DAG)
    job = record_schema(JOB)
    job["allOf"] = [
        {
            "if": {"properties": {"operator": {"const": name}}, "required": ["operator"]},
            "then": {"properties": {"config": record_schema(operator.record(name))}},
        }
        for name, operator in OPERATORS.items()
    ]
    schema["properties"]["jobs"]["items"] = {"$ref": "#/$defs/job"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://noetl.io/schemas/dag.json",
        "title": "NoETL DAG",
        **schema,
        "$defs": {"job": job},
    }
