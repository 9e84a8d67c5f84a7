"""Small DAGs for tests: a job with some fields, and what is said about it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from noetl.language.dag.model import Job
from noetl.language.dag.parse import parse, problems_of

UP = {"name": "up", "sql": "SELECT 1 AS id, 'x' AS day"}


def dag(*jobs: Mapping[str, Any], **top: Any) -> str:
    """Write a DAG of these jobs after the job `up`; JSON is YAML too."""
    return json.dumps({"name": "demo", "jobs": [UP, *jobs], **top})


def job_of(operators: Collection[str] | None = (), files: Mapping[str, bytes] | None = None, **fields: Any) -> Job:
    """Return a job `it` with these fields."""
    return parse(dag({"name": "it", **fields}), files=files, operators=operators).dag.job("it")


def codes(text: str, files: Mapping[str, bytes] | None = None, operators: Collection[str] | None = ()) -> list[str]:
    """Return the codes of what is said about a DAG."""
    return [problem.code for problem in problems_of(text, files=files, operators=operators)]


def said_of(files: Mapping[str, bytes] | None = None, **fields: Any) -> list[str]:
    """Return code and message of what is said about a job `it` with these fields."""
    found = problems_of(dag({"name": "it", **fields}), files=files)
    return [f"{problem.code}: {problem.message}" for problem in found]
