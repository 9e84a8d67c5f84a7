"""A deterministic API of patients to run the PFT workload against: `python -m examples.pft.mock_api --port 5555`.

Prints `listening on URL` as its first line and serves until SIGTERM or SIGINT. The patient and MDS endpoints obey
`--rate-limit` and `--latency-ms`; it keeps no data and needs no network but its own port.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec

from examples.pft import lists, records
from examples.pft.http_server import Answer, Request, listening
from examples.pft.limiter import TOO_MANY, Limiter
from examples.pft.troubles import Troubles, after

Route = Callable[[Request], Answer | Awaitable[Answer]]
MOST_BATCHED = 500
PATIENT = "/api/v1/patient/"


class MockApi:
    """All endpoints. `rate_limit` 0 is off; `batch` opens the endpoint that serves many patients at once."""

    def __init__(
        self,
        *,
        latency_ms: float = 0,
        rate_limit: int = 0,
        batch: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._latency = latency_ms / 1000
        self._limiter = Limiter(rate_limit, clock)
        self._batch = batch
        troubles = Troubles(clock)
        self._patient_routes: dict[str, Route] = {
            **dict.fromkeys((PATIENT + name for name in records.PAGES), _patient_page),
            PATIENT + "demographics": _demographics,
            "/api/v1/pft/mds/details": _mds_details,
            "/api/v1/mds/assessment_ids": _assessment_ids,
        }
        self._routes: dict[str, Route] = {
            "/health": lambda _: Answer({"status": "ok"}),
            "/api/v1/assessments": lists.by_page,
            "/api/v1/users": lists.by_offset,
            "/api/v1/events": lists.by_cursor,
            "/api/v1/heavy": lists.heavy,
            "/api/v1/heavy/stats": lists.heavy_stats,
            "/api/v1/reference-chain/items": lists.chain_items,
            "/api/v1/patient-records": troubles.patient_records,
            "/api/v1/flaky": troubles.flaky,
            "/api/v1/errors": troubles.errors,
            "/api/v1/rate-limited": troubles.rate_limited,
            "/api/v1/concurrency/probe": troubles.probe,
            "/api/v1/concurrency/stats": troubles.probe_stats,
        }
        self._folders: dict[str, Route] = {
            "/api/v1/mds/assessment": self._assessment,
            "/api/v1/reference-chain/detail": lists.chain_detail,
            "/api/v1/pft/batch": self._batched,
        }
        self._posts: dict[str, Route] = {
            "/api/v1/flaky/reset": troubles.reset_flaky,
            "/api/v1/concurrency/reset": troubles.reset_probe,
        }

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer a request; a query that cannot be read is a 400."""
        try:
            return self._answer(request)
        except (ValueError, KeyError) as error:
            return Answer({"detail": f"cannot read the query: {error}"}, 400)

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        if request.method == "GET":
            route = self._patient_routes.get(request.path)
            if route is not None:
                return self._limited(route, request)
            route = self._routes.get(request.path) or self._folders.get(request.path.rpartition("/")[0])
        else:
            route = self._posts.get(request.path)
        return Answer({"detail": f"no {request.method} {request.path}"}, 404) if route is None else route(request)

    def _limited(self, route: Route, request: Request) -> Answer | Awaitable[Answer]:
        answer = route(request) if self._limiter.admits() else TOO_MANY
        return answer if not self._latency or not isinstance(answer, Answer) else after(self._latency, answer)

    def _assessment(self, request: Request) -> Answer | Awaitable[Answer]:
        return self._limited(lambda asked: Answer(records.assessment(asked.path.rpartition("/")[2])), request)

    def _batched(self, request: Request) -> Answer:
        """Serve the first page of many patients; closed unless asked for, since one request should be one record."""
        data_type = request.path.rpartition("/")[2]
        if not self._batch:
            return Answer({"detail": "batches are closed; start with --batch"}, 410)
        patients = [int(given) for given in request.query["patientIds"].split(",")]
        if len(patients) > MOST_BATCHED:
            return Answer({"detail": f"at most {MOST_BATCHED} patients"}, 400)
        found = [_payload(patient_id, data_type) for patient_id in patients]
        rows = [{"patientId": patient_id, "payload": each} for patient_id, each in zip(patients, found, strict=True)]
        return Answer({"rowCount": len(rows), "rows": rows})


def _payload(patient_id: int, data_type: str) -> object:
    if data_type == "demographics":
        return records.demographics(patient_id)
    return records.page_of(patient_id, data_type, 1)


def _patient_page(request: Request) -> Answer:
    query = request.query
    page = records.page_of(int(query["patientId"]), request.path[len(PATIENT) :], int(query.get("page", 1)))
    return Answer({"detail": "past the last page"}, 404) if page is None else Answer(page)


def _demographics(request: Request) -> Answer:
    return Answer(records.demographics(int(request.query["patientId"])))


def _mds_details(request: Request) -> Answer:
    assessment_id = request.query["assessmentId"]
    if "," in assessment_id:
        return Answer({"detail": "one assessment a request"}, 400)
    row = {"assessment_id": assessment_id, "payload": records.assessment(assessment_id)}
    return Answer({"rowCount": 1, "rows": [row]})


def _assessment_ids(request: Request) -> Answer:
    patient_id = int(request.query["patientId"])
    count = 2 + records.number(f"{patient_id}:mds") % 4
    return Answer(
        {"patientId": patient_id, "assessmentIds": [f"MDS-{patient_id}-{place:02d}" for place in range(count)]}
    )


@asynccontextmanager
async def serve(api: MockApi | None = None, port: int = 0) -> AsyncIterator[str]:
    """Serve the API in this process, on any free port unless told, and give its base URL."""
    async with listening((api or MockApi()).handle, port) as url:
        yield url


async def _until_told(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    api = MockApi(latency_ms=given.latency_ms, rate_limit=given.rate_limit, batch=given.batch)
    async with serve(api, given.port) as url:
        print(f"listening on {url}", flush=True)
        await stop.wait()


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.pft.mock_api", description=__doc__)
    parser.add_argument("--port", type=int, default=5555, help="0 takes any free port")
    parser.add_argument("--latency-ms", type=float, default=0, help="delay of every patient and MDS answer")
    parser.add_argument("--rate-limit", type=int, default=0, help="patient and MDS requests a second; 0 is off")
    parser.add_argument("--batch", action="store_true", help="open /api/v1/pft/batch")
    given = parser.parse_args()
    quicker_loop = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=quicker_loop) as runner:
        runner.run(_until_told(given))


if __name__ == "__main__":
    main()
