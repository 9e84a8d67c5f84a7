"""Sends requests that a description of the API allows, and collects those that a server failed on."""

from __future__ import annotations

from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

EXAMPLES = 1
"""Per operation, the same in every run; `make test-attacks` tries more."""

ANSWER_SECONDS = 3


def failures_of(described: dict[str, Any], url: str, examples: int = EXAMPLES) -> list[str]:
    """Return the requests that a server answered with an error of its own, trying so many of each operation."""
    failures: list[str] = []
    schema = schemathesis.openapi.from_dict(_without_tokens(described))
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()

            @given(case=operation.as_strategy())
            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def probe(case: Any) -> None:
                try:
                    answer = case.call(base_url=url, session=session, timeout=ANSWER_SECONDS)
                except requests.Timeout:
                    return  # it asked to wait for work
                if answer.status_code >= 500:
                    failures.append(f"{case.method} {case.formatted_path} {case.query} {case.body!r}: {answer.text}")

            probe()
    return failures


def _without_tokens(described: Any) -> Any:
    """Return a description that speaks of no tokens: made-up ones would be refused, ever more slowly, before anything is tried."""
    if isinstance(described, dict):
        return {
            name: _without_tokens(value)
            for name, value in described.items()
            if name not in {"security", "securitySchemes"}
        }
    return [_without_tokens(one) for one in described] if isinstance(described, list) else described
