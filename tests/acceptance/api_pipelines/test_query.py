"""Queries over the API: three forms of answer, refusals as problems, roles, and the record of what was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.acceptance.api_pipelines.conftest import Parts
from tests.acceptance.api_pipelines.test_datasets import _with_rows
from tests.integration.api.serving import HOME, Server, running
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.services.people import People
from noetl.services.query.audit import Audit
from noetl.services.query.duck.pool import Duck
from noetl.services.query.options import DuckOptions, Limits
from noetl.services.query.pins import Pinning
from noetl.services.query.queries import Queries
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

ALL = {"sql": "SELECT id, cost, at, share FROM visits ORDER BY id"}
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
async def asked(parts: Parts, testbed: TaskTestbed, lake: LakeFiles, tmp_path: Any) -> AsyncIterator[Server]:
    """A server that asks for tokens and answers queries about three visits."""
    await _with_rows(testbed, lake)
    services, projections = parts
    duck = Duck(DuckOptions(home=str(tmp_path / "query"), lake_root=str(tmp_path / "lake"), memory="256MB", threads=1))
    pinning = Pinning(services.database, Datasets(services.database, services.payloads, services.history))
    audit = Audit(services.database, services.ledger, lambda many: [services.mint() for _ in range(many)], PRODUCER)
    queries = Queries(pinning, audit, duck, lake.checks, None, services.mint, Limits(rows=100, most_rows=1000))
    async with running(replace(services, auth_required=True, queries=queries), projections, auth=True) as server:
        yield server
    await duck.close()


async def bearer(server: Server, role: str, user: str | None = None) -> dict[str, str]:
    """Make a token and return the headers of whoever shows it."""
    token, _ = await server.services.tokens.create(HOME, f"a {role}", role, user=user)  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {token.reveal()}"}


async def raw(server: Server, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any, bytes]:
    """Ask and return status, headers and bytes."""
    data = msgspec.json.encode(body)
    given = {"Content-Type": "application/json", **headers}
    async with server.session.post(f"{server.url}/api/query", data=data, headers=given) as response:
        return response.status, response.headers, await response.read()


async def test_an_answer_comes_in_the_form_that_is_asked_for(asked: Server) -> None:
    reader = await bearer(asked, "reader")
    found = await asked.call("POST", "/api/query", ALL, status=200, headers=reader)
    assert found["columns"][:2] == [{"name": "id", "type": "int64"}, {"name": "cost", "type": "decimal128(6, 2)"}]
    assert found["rows"][:2] == [
        [1, "1.50", "2026-05-01T00:00:00+00:00", 0.5],
        [2, None, "2026-05-02T00:00:00+00:00", "nan"],
    ]
    assert (found["truncated"], found["limit"], found["engine"]) == (False, 100, "duckdb")
    assert found["datasets"][0]["name"] == "visits"

    status, headers, content = await raw(asked, ALL, {**reader, "Accept": ARROW})
    table = pa.ipc.open_stream(content).read_all()
    assert (status, headers["Content-Type"]) == (200, ARROW)
    assert table.column("at").to_pylist()[0] == datetime(2026, 5, 1, tzinfo=UTC)
    assert table.schema.metadata[b"noetl.as_of"].decode() == headers["Noetl-As-Of"]
    assert table.schema.metadata[b"noetl.generation.visits"].decode() == found["datasets"][0]["dataset_version"]

    status, headers, content = await raw(asked, {**ALL, "limit": 1}, {**reader, "Accept": "image/png, text/csv;q=0.9"})
    assert (status, headers["Content-Type"]) == (200, "text/csv; charset=utf-8; header=present")
    assert content.decode() == "id,cost,at,share\n1,1.50,2026-05-01T00:00:00+00:00,0.5\n"
    assert headers["Noetl-Truncated"] == "true"

    status, _, content = await raw(asked, ALL, {**reader, "Accept": "image/png"})
    assert (status, "text/csv" in msgspec.json.decode(content)["detail"]) == (400, True)
    again = await asked.call("POST", "/api/query", {**ALL, "as_of": found["as_of"]}, status=200, headers=reader)
    assert (again["rows"], again["datasets"], again["as_of"]) == (found["rows"], found["datasets"], found["as_of"])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"sql": "SELECT * FROM '/etc/passwd'"}, 400, "query_refused"),
        ({"sql": "DROP TABLE visits"}, 400, "query_refused"),
        ({"sql": "SELECT nope FROM visits"}, 400, "query_failed"),
        (
            {"sql": "SELECT count(*) FROM range(1000000) a, range(1000000) b", "timeout_seconds": 0.2},
            400,
            "query_timed_out",
        ),
        ({"sql": "SELECT 1", "limit": 100000}, 400, "input_invalid"),
        ({"sql": "SELECT 1", "engine": "sqlite"}, 400, "input_invalid"),
        ({"sql": "SELECT 1", "as_of": "sometime"}, 400, "input_invalid"),
        ({"sql": "SELECT 1", "colour": "red"}, 400, "input_invalid"),
        ({"sql": ""}, 400, "input_invalid"),
        ({}, 400, "input_invalid"),
    ],
)
async def test_what_is_not_answered_is_a_problem(asked: Server, body: dict[str, Any], status: int, code: str) -> None:
    found, headers, content = await raw(asked, body, await bearer(asked, "reader"))
    problem = msgspec.json.decode(content)
    assert (found, problem["code"], headers["Content-Type"]) == (status, code, "application/problem+json")


async def test_who_may_not_read_a_dataset_neither_asks_nor_sees_it(asked: Server) -> None:
    """INV-78."""
    services, admin = asked.services, await bearer(asked, "admin")
    people = People(services.database, services.ledger, services.mint, PRODUCER)
    await people.create_role(HOME, "doctors", "Doctors")
    await people.add_user(HOME, "ann@example.org")
    await people.grant(HOME, "doctors", "ann@example.org")
    ann, other = await bearer(asked, "reader", "ann@example.org"), await bearer(asked, "writer")
    reading = (
        "/api/datasets/visits",
        "/api/datasets/visits/head",
        "/api/datasets/visits/schema",
        "/api/datasets/visits/partitions",
        "/api/datasets/visits/generations",
        "/api/datasets/clinic.visits.0",
    )
    for path in reading[:-1]:
        await asked.call("GET", path, status=200, headers=other)
    await asked.call("POST", "/api/datasets/visits/grant", {"role": "doctors"}, status=403, headers=other)
    granted = await asked.call("POST", "/api/datasets/visits/grant", {"role": "doctors"}, status=200, headers=admin)
    assert granted["readers"] == ["doctors"]
    for path in reading[:-1]:
        await asked.call("GET", path, status=200, headers=ann)
        refused = await asked.call("GET", path, status=403, headers=other)
        assert refused["code"] == "denied"
    assert (await asked.call("GET", reading[0], headers=ann))["readers"] == ["doctors"]
    for whose, names in ((other, []), (ann, ["visits"]), (admin, ["visits"])):
        page = await asked.call("GET", "/api/datasets", status=200, headers=whose)
        assert [one["dataset"]["name"] for one in page["datasets"]] == names
    assert (await asked.call("POST", "/api/query", ALL, status=403, headers=other))["code"] == "denied"
    assert len((await asked.call("POST", "/api/query", ALL, status=200, headers=ann))["rows"]) == 3
    await asked.call("POST", "/api/datasets/visits/revoke", {"role": "doctors"}, status=400, headers=admin)
    await asked.call("POST", "/api/datasets/visits/revoke", {}, status=400, headers=admin)
    opened = await asked.call("POST", "/api/datasets/visits/revoke", {"all": True}, status=200, headers=admin)
    assert opened["readers"] == []
    await asked.call("POST", "/api/query", ALL, status=200, headers=other)


async def test_what_was_asked_is_listed_for_administrators(asked: Server) -> None:
    reader, admin = await bearer(asked, "reader"), await bearer(asked, "admin")
    first = await asked.call("POST", "/api/query", ALL, status=200, headers=reader)
    await asked.call("POST", "/api/query", {"sql": "SELECT 'pa55word' FROM nowhere"}, status=400, headers=reader)
    await asked.call("GET", "/api/query/log", status=403, headers=reader)
    page = await asked.call("GET", "/api/query/log?limit=1", status=200, headers=admin)
    assert [(one["outcome"], one["code"]) for one in page["queries"]] == [("refused", "relation")]
    rest = await asked.call("GET", f"/api/query/log?cursor={page['next_cursor']}", status=200, headers=admin)
    (told,) = rest["queries"]
    assert (told["query_id"], told["rows"], told["as_of"]) == (first["query_id"], 3, first["as_of"])
    assert told["asked_by"] == f"token/{told['token_id']}"
    assert rest["next_cursor"] is None
    only = await asked.call("GET", "/api/query/log?outcome=answered&dataset=visits", status=200, headers=admin)
    assert len(only["queries"]) == 1
    assert "pa55word" not in str(page) + str(rest)


async def test_a_server_without_queries_says_so(server: Server) -> None:
    refused = await server.call("POST", "/api/query", {"sql": "SELECT 1"}, status=404)
    assert "answers no queries" in refused["detail"]


async def test_a_worker_may_not_ask(asked: Server) -> None:
    await asked.call("POST", "/api/query", ALL, status=403, headers=await bearer(asked, "worker"))


async def test_more_queries_than_may_be_asked_at_a_time_are_told_to_wait(asked: Server) -> None:
    assert asked.services.queries is not None
    limited = replace(asked.services, queries=_full(asked.services.queries))
    async with running(limited, asked.projections, auth=True) as server:
        status, headers, content = await raw(server, ALL, await bearer(asked, "reader"))
    assert (status, msgspec.json.decode(content)["code"], headers["Retry-After"]) == (429, "too_many", "1")


def _full(queries: Queries) -> Queries:
    queries.limits = msgspec.structs.replace(queries.limits, concurrent=0)
    return queries
