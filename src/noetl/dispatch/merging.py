"""Lays a request's payload over a playbook's own workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both; where both have a mapping they are merged, else the upper one counts."""
    result = dict(below)
    for key, value in above.items():
        own = result.get(key)
        result[key] = merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return result
