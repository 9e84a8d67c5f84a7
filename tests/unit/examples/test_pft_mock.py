"""The mock API over real HTTP: the same answer to the same question, and trouble where trouble is asked for."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from examples.pft import records
from examples.pft.limiter import Limiter
from examples.pft.mock_api import MockApi, serve


class Client:
    """Asks and gives back status, body and headers."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str, **query: Any) -> tuple[int, Any]:
        async with self._session.get(path, params=query) as response:
            return response.status, await response.json()

    async def headers(self, path: str, **query: Any) -> tuple[int, str | None]:
        async with self._session.get(path, params=query) as response:
            return response.status, response.headers.get("Retry-After")

    async def post(self, path: str) -> int:
        async with self._session.post(path, json={"any": "body"}) as response:
            return response.status


@asynccontextmanager
async def talking(**options: Any) -> AsyncIterator[Client]:
    """Serve with a clock that stands still: what comes within a second does not depend on how busy the machine is."""
    async with serve(MockApi(clock=lambda: 0.0, **options)) as url, aiohttp.ClientSession(url) as session:
        yield Client(session)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with talking() as made:
        yield made


async def test_a_patient_has_the_pages_the_formula_says_and_no_more(client: Client) -> None:
    for data_type in records.PAGES:
        total = records.page_count(7, data_type)
        for page in range(1, total + 1):
            status, body = await client.get(f"/api/v1/patient/{data_type}", patientId=7, page=page, pageSize=50)
            assert status == 200
            assert body["paging"] == {"hasMore": page < total, "page": page, "pageSize": 1, "total": total}
            assert body["data"] == [records.record(7, data_type, page)]
        assert (await client.get(f"/api/v1/patient/{data_type}", patientId=7, page=total + 1))[0] == 404


async def test_an_assessment_names_the_mds_assessments_the_formula_says(client: Client) -> None:
    _, body = await client.get("/api/v1/patient/assessments", patientId=3)
    named = body["data"][0]["mdsAssessmentIds"]
    assert len(named) == records.mds_count(3, 1)
    assert 5 <= len(named) <= 10
    assert all(name.startswith("MDS-3-p1-0-") for name in named)


async def test_demographics_are_one_object(client: Client) -> None:
    _, body = await client.get("/api/v1/patient/demographics", patientId=3)
    assert body == records.demographics(3)
    assert {"firstName", "lastName", "dob", "gender", "status"} <= body.keys()


async def test_one_request_gives_the_detail_of_one_assessment(client: Client) -> None:
    status, body = await client.get("/api/v1/pft/mds/details", assessmentId="MDS-3-p1-0-00")
    assert (status, body["rowCount"]) == (200, 1)
    assert body["rows"] == [{"assessment_id": "MDS-3-p1-0-00", "payload": records.assessment("MDS-3-p1-0-00")}]
    assert (await client.get("/api/v1/pft/mds/details", assessmentId="a,b"))[0] == 400


async def test_a_patients_own_assessments_have_three_sections_of_three_questions(client: Client) -> None:
    _, body = await client.get("/api/v1/mds/assessment_ids", patientId=11)
    assert 2 <= len(body["assessmentIds"]) <= 5
    _, detail = await client.get(f"/api/v1/mds/assessment/{body['assessmentIds'][0]}")
    assert [len(section["questions"]) for section in detail["sections"]] == [3, 3, 3]


async def test_batches_are_closed_unless_opened(client: Client) -> None:
    assert (await client.get("/api/v1/pft/batch/assessments", patientIds="1,2"))[0] == 410
    async with talking(batch=True, rate_limit=1) as opened:
        for _ in range(3):
            status, body = await opened.get("/api/v1/pft/batch/demographics", patientIds="1,2")
            assert (status, [row["patientId"] for row in body["rows"]]) == (200, [1, 2])
        too_many = ",".join(str(place) for place in range(501))
        assert (await opened.get("/api/v1/pft/batch/assessments", patientIds=too_many))[0] == 400


async def test_the_limiter_refuses_what_is_above_the_rate_and_says_when_to_come_back() -> None:
    async with talking(rate_limit=3) as limited:
        told = [await limited.headers("/api/v1/patient/demographics", patientId=1) for _ in range(4)]
        assert told == [(200, None)] * 3 + [(429, "1")]
        assert (await limited.get("/health"))[0] == 200


def test_the_window_of_the_limiter_slides() -> None:
    now = 0.0
    limiter = Limiter(2, lambda: now)
    assert [limiter.admits() for _ in range(3)] == [True, True, False]
    now = 0.9
    assert not limiter.admits()
    now = 1.0
    assert [limiter.admits() for _ in range(3)] == [True, True, False]


def test_a_limit_of_nothing_lets_everything_through() -> None:
    limiter = Limiter(0)
    assert all(limiter.admits() for _ in range(1000))


async def test_latency_delays_the_patient_endpoints() -> None:
    async with talking(latency_ms=30) as slow:
        began = asyncio.get_running_loop().time()
        assert (await slow.get("/api/v1/patient/demographics", patientId=1))[0] == 200
        assert asyncio.get_running_loop().time() - began >= 0.029


@pytest.mark.parametrize(
    ("path", "name", "first", "following"),
    [
        ("/api/v1/assessments", "data", {}, lambda body: {"page": body["paging"]["page"] + 1}),
        ("/api/v1/users", "users", {}, lambda body: {"offset": body["offset"] + 10}),
        ("/api/v1/events", "events", {}, lambda body: {"cursor": body["next_cursor"]}),
    ],
)
async def test_the_three_ways_of_paging_give_all_35_items_once(
    client: Client, path: str, name: str, first: dict[str, Any], following: Any
) -> None:
    seen: list[int] = []
    query = first
    while len(seen) < 35:
        _, body = await client.get(path, **query)
        seen += [item["id"] for item in body[name]]
        has_more = body.get("next_cursor") or body.get("has_more") or body.get("paging", {}).get("hasMore")
        assert bool(has_more) == (len(seen) < 35)
        query = following(body)
    assert seen == list(range(1, 36))


async def test_heavy_items_weigh_what_is_asked(client: Client) -> None:
    _, body = await client.get("/api/v1/heavy", payload_kb=3, pageSize=2)
    assert [len(item["payload"]) for item in body["data"]] == [3072, 3072]
    assert (await client.get("/api/v1/heavy/stats", payload_kb=3))[1]["total_kb"] == 300


async def test_references_are_linked_windowed_or_expanded(client: Client) -> None:
    _, linked = await client.get("/api/v1/reference-chain/items")
    assert len(linked["items"]) == 382
    _, windowed = await client.get("/api/v1/reference-chain/items", ref_mode="windowed", offset=380, limit=50)
    assert [item["id"] for item in windowed["items"]] == [381, 382]
    _, expanded = await client.get("/api/v1/reference-chain/items", ref_mode="expanded", total=2)
    assert expanded["items"][1]["detail"] == (await client.get(linked["items"][1]["ref"]))[1]
    assert (await client.get("/api/v1/reference-chain/items", total=20_001))[0] == 400


async def test_a_flaky_page_fails_once_until_it_is_reset(client: Client) -> None:
    async def pages() -> list[int]:
        return [(await client.get("/api/v1/flaky", page=page, fail_on="2,3"))[0] for page in (1, 2, 2, 3, 3)]

    assert await pages() == [200, 500, 200, 500, 200]
    assert await pages() == [200] * 5
    assert await client.post("/api/v1/flaky/reset") == 200
    assert await pages() == [200, 500, 200, 500, 200]


async def test_forced_errors_are_the_ones_asked_for(client: Client) -> None:
    asked = {"429": 429, "500": 500, "503": 503, "auth": 401, "403": 403, "404": 404, "what": 400}
    for error_type, status in asked.items():
        assert (await client.get("/api/v1/errors", error_type=error_type))[0] == status
    assert await client.headers("/api/v1/errors", error_type="429") == (429, "1")
    assert (await client.get("/api/v1/errors", error_type="timeout", seconds=0))[0] == 504


async def test_each_rate_has_a_limit_of_its_own(client: Client) -> None:
    told = [(await client.get("/api/v1/rate-limited", requests_per_second=2))[0] for _ in range(3)]
    assert told == [200, 200, 429]
    assert (await client.get("/api/v1/rate-limited", requests_per_second=5))[0] == 200


async def test_patient_records_are_large_and_end(client: Client) -> None:
    quick = {"patientId": 4, "min_delay": 0, "max_delay": 0}
    _, body = await client.get("/api/v1/patient-records", **quick)
    assert len(body["data"][0]["notes"]) == 102_400
    total = body["paging"]["total"]
    assert 2 <= total <= 5
    assert (await client.get("/api/v1/patient-records", page=total + 1, **quick))[0] == 404
    assert (await client.get("/api/v1/patient-records", rate_limit=1, **quick))[0] == 200
    assert (await client.get("/api/v1/patient-records", rate_limit=1, **quick))[0] == 429


async def test_the_probe_counts_who_is_there_at_once(client: Client) -> None:
    probes = [
        asyncio.ensure_future(client.get("/api/v1/concurrency/probe", delay_seconds=300, label="a")) for _ in range(3)
    ]
    while (await client.get("/api/v1/concurrency/stats"))[1].get("a", {}).get("active") != 3:
        pass
    for probe in probes:
        probe.cancel()
    while (await client.get("/api/v1/concurrency/stats"))[1]["a"]["active"]:
        pass
    assert await client.get("/api/v1/concurrency/probe", delay_seconds=0) == (
        200,
        {"label": "default", "max_active": 1},
    )
    _, stats = await client.get("/api/v1/concurrency/stats")
    assert stats == {
        "a": {"active": 0, "max_active": 3, "total": 3},
        "default": {"active": 0, "max_active": 1, "total": 1},
    }
    assert (await client.get("/api/v1/concurrency/probe", delay_seconds=301))[0] == 400
    await client.post("/api/v1/concurrency/reset")
    assert (await client.get("/api/v1/concurrency/stats"))[1] == {}


async def test_what_cannot_be_read_or_is_not_there_is_said(client: Client) -> None:
    assert (await client.get("/api/v1/patient/assessments", patientId="x"))[0] == 400
    assert (await client.get("/api/v1/patient/assessments"))[0] == 400
    assert (await client.get("/nowhere"))[0] == 404
    assert await client.post("/health") == 404


async def test_answers_leave_in_the_order_of_the_requests() -> None:
    async with serve(MockApi(latency_ms=20)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        paths = ("/api/v1/patient/demographics?patientId=1", "/health", "/api/v1/users?limit=1")
        writer.write(b"".join(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode() for path in paths))
        bodies = []
        for _ in paths:
            head = await reader.readuntil(b"\r\n\r\n")
            bodies.append(await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])))
        assert [next(part for part in (b"firstName", b"status", b"users") if part in body) for body in bodies] == [
            b"firstName",
            b"status",
            b"users",
        ]
        writer.close()
        await writer.wait_closed()


async def test_what_is_not_http_is_refused() -> None:
    async with serve() as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"good morning\r\n\r\n")
        assert b" 400 " in await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_the_program_says_where_it_listens_and_stops_when_told() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.pft.mock_api", "--port", "0", "--batch",
        stdout=asyncio.subprocess.PIPE, cwd=Path(records.__file__).parents[2],
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode().strip()
        assert said.startswith("listening on http://127.0.0.1:")
        async with aiohttp.ClientSession(said.removeprefix("listening on ")) as session:
            assert (await Client(session).get("/api/v1/pft/batch/assessments", patientIds=1))[0] == 200
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
