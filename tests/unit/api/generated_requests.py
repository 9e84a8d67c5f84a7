"""Sends requests that a description of the API allows, and collects those that a server failed on."""

from __future__ import annotations

from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

EXAMPLES = 3
"""Per operation, the same in every run; few enough to stay within seconds."""


def failures_of(described: dict[str, Any], url: str) -> list[str]:
    """Return the requests that a server answered with an error of its own."""
    failures: list[str] = []
    schema = schemathesis.openapi.from_dict(described)
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()

            @given(case=operation.as_strategy())
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def probe(case: Any) -> None:
                answer = case.call(base_url=url, session=session)
                if answer.status_code >= 500:
                    failures.append(f"{case.method} {case.formatted_path} {case.query} {case.body!r}: {answer.text}")

            probe()
    return failures
