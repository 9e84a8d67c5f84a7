"""What a server and its worker write of a run of everything they do: each event holds what it claims, by every rule we publish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from jsonschema import Draft202012Validator

from noetl.model.canonical import exact_json
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Event, to_json
from noetl.model.locator import SCHEME, parse_locator
from noetl.model.validate import claim_problems
from noetl.pipelines.catalog.dags.bundles import read_bundle
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import open_pipelines
from noetl.runtime.roles.server import Serving, open_server
from noetl.runtime.service import Stopping
from noetl.runtime.settings.declaration import Settings
from noetl.services.credentials.local_secrets import find_local_token
from noetl.testing.contracts.ledger.event_lists import everything

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: all, path: tests/all}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'rows': [1, 2, 3], 'text': 'x' * 200000}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ start.rows }}", iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 1}}}
    tool: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = {'n': input_data['n'], 'text': 'y' * 30000}"}
    next: {arcs: [{step: fan}]}
  - step: fan
    loop: {in: [1, 2], iterator: n, spec: {mode: fanout}}
    tool: {kind: noop, input: {n: "{{ iter.n }}"}}
    next: {arcs: [{step: keep}]}
  - step: keep
    tool: {kind: artifact, action: put, input: {data: "{{ start }}"}}
    next: {arcs: [{step: child}]}
  - step: child
    tool: {kind: playbook, path: tests/child}
    next: {arcs: [{step: fails}]}
  - step: fails
    tool: {kind: python, code: "raise ValueError('no')", spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0.01}}]}}}
"""
CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: tests/child}
workflow:
  - step: only
    tool: {kind: noop, input: {some: work}}
"""
DAG = "name: shop\njobs: [{name: orders, operator: noop}, {name: copy, operator: noop, inputs: [orders]}]\npublish: [copy]\n"


async def test_every_event_of_a_run_of_everything_holds_what_it_claims(owner_url: str, tmp_path: Path) -> None:
    """INV-157, INV-158."""
    given = {"home": str(tmp_path), "node_id": "n1", "zone": "z1", "region": "r1"}
    settings = Settings.model_validate({"runtime": given, "database": {"url": owner_url}})
    async with open_server(settings, Stopping(), lambda text: None, port=0, slots=2) as serving:
        await _work(serving, tmp_path)
        own = {producer_of(serving.runtime, role) for role in ("server", "worker", "tasks", "scheduler", "cli")}
        events = await everything(serving.runtime.ledger)
    assert {event.producer for event in events} <= own
    types = {event.event_type for event in events}
    assert types >= {"frame.committed", "loop.shard.done", "artifact.stored", "task.completed", "playbook.failed"}
    assert types >= {"schedule.created", "user.added", "business.paid", "command.claimed", "dag.activated"}
    workers = {event.meta["worker"] for event in events if "worker" in event.meta}
    assert workers == {producer_of(serving.runtime, "worker"), producer_of(serving.runtime, "tasks")}
    for event in events:
        assert claim_problems(event) == []
        for text in _locators(to_json(event)):
            assert str(parse_locator(text)) == text, (event.event_type, text)
        if not event.event_type.startswith("business."):
            assert _schema_problems(event) == [], event.event_type


async def _work(serving: Serving, home: Path) -> None:
    runtime, engine = serving.runtime, serving.engine
    await engine.catalog.register(runtime.scope, CHILD)
    entry = (await engine.catalog.register(runtime.scope, PLAYBOOK)).entry
    started = await engine.start(runtime.scope, entry, requested_by="tests")
    file = home / "dag.yaml"
    file.write_text(DAG)
    async with open_pipelines(runtime, "cli", drive=False) as pipelines:
        deployed = await pipelines.deploy(read_bundle(file, operators={"noop"}), "tests")
        assert (await pipelines.finished(deployed.execution_id)).status == "completed"
        await pipelines.activate("shop", None, "tests")
    token = find_local_token(runtime.settings.key_directory)
    assert token is not None
    async with aiohttp.ClientSession(serving.url, headers={"Authorization": f"Bearer {token.reveal()}"}) as session:
        for path, body in _REQUESTS.items():
            async with session.post(path, json=body) as answer:
                assert answer.status < 300, await answer.text()
    state = await engine.finished(runtime.scope, started.execution_id, 60.0)
    assert (state.status, state.failed_step) == ("FAILED", "fails"), state.error


_REQUESTS: dict[str, Any] = {
    "/api/events": {
        "event_type": "business.paid",
        "aggregate_type": "invoice",
        "aggregate_id": "7",
        "meta": {"sum": 3},
    },
    "/api/schedules": {"name": "nightly", "expression": "0 3 * * *", "playbook": "tests/child"},
    "/api/people": {"email": "ada@example.com"},
}


def _locators(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith(SCHEME):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _locators(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _locators(one)


def _schema_problems(event: Event) -> list[str]:
    told = json.loads(exact_json(to_json(event)))
    found = Draft202012Validator(BY_NAME[event.event_type].json_schema()).iter_errors(told)
    return [f"{'/'.join(map(str, one.absolute_path))}: {one.message}" for one in found]
