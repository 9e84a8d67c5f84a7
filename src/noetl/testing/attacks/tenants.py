"""Requests for what belongs to another organization: every route, with real names of the other's things in its address and body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from noetl.api.endpoint import Endpoint


class Attempt(NamedTuple):
    """One request of a stranger."""

    method: str
    path: str
    body: Any


def attempts(endpoint: Endpoint, things: Mapping[str, str]) -> Iterator[Attempt]:
    """Yield requests of a route for things that are known by name, with and without a body that names them, too."""
    named = {name: things.get(name, "x") for name in endpoint.parameters}
    path = endpoint.template.format(**named)
    if endpoint.method == "GET":
        query = "&".join(f"{name}={value}" for name, value in things.items() if name.endswith("_id"))
        yield Attempt("GET", path, None)
        yield Attempt("GET", f"{path}?{query}", None)
        return
    yield Attempt(endpoint.method, path, dict(things))
    for body in bodies(things):
        yield Attempt(endpoint.method, path, body)


def bodies(things: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield bodies that routes take, about the other's things."""
    execution_id, command_id = things["execution_id"], things["command_id"]
    lease = {"attempt": 1, "lease_token": "00000000-0000-4000-8000-000000000000"}
    yield {"path": things["path"]}
    yield {"path": things["path"], "version": 1}
    yield {"execution_id": execution_id, "template": "{{ workload.marker }}"}
    yield {"execution_id": execution_id, "name": things["name"], "command_id": command_id, **lease}
    yield {"event_type": "business.seen", "aggregate_id": "thing", "execution_id": execution_id}
    yield {"sql": "SELECT * FROM theirs"}
    yield {"worker_id": "stranger", "limit": 10, "wait_seconds": 0}
    yield {"parent_execution_id": execution_id, "path": things["path"]}
