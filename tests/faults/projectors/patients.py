"""The patient workload as the load on projectors: a server that projects nothing, and an API that lets it go on in portions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request as Call
from urllib.request import urlopen

import asyncpg
from examples.pft.http_server import Answer, Request, listening
from examples.pft.mock_api import MockApi
from examples.pft.records import DATA_TYPES

PLAYBOOK = Path(__file__).parents[3] / "examples" / "pft" / "pft_s3.yaml"
BESIDE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: beside, path: demo/beside}
workflow:
  - step: each
    loop: {in: "{{ range(4) }}", iterator: item, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: noop}
"""
PATIENCE = 60
TABLES = {**{kind: f"pft_test_patient_{kind}" for kind in DATA_TYPES}, "mds": "pft_test_mds_assessment_details"}


class PortionedApi:
    """The mock API, which answers as many requests as it was allowed to and lets the others wait."""

    def __init__(self) -> None:
        self._api = MockApi()
        self._allowed = self._asked = 0
        self._more = asyncio.Condition()

    async def allow(self, requests: int) -> None:
        """Let so many more be answered."""
        async with self._more:
            self._allowed += requests
            self._more.notify_all()

    async def used_up(self) -> None:
        """Wait until more was asked for than is allowed."""
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(lambda: self._asked > self._allowed)

    async def handle(self, request: Request) -> Answer:
        """Answer when it is allowed."""
        async with self._more:
            self._asked += 1
            turn = self._asked
            self._more.notify_all()
            await self._more.wait_for(lambda: turn <= self._allowed)
        answer = self._api.handle(request)
        return answer if isinstance(answer, Answer) else await answer


class PatientServer:
    """`noetl server` with a worker and without a projector, asked over its API."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def ask(self, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer."""

        def asked() -> Any:
            data = None if body is None else json.dumps(body).encode()
            with urlopen(
                Call(self._url + path, data, {"Content-Type": "application/json"}), timeout=PATIENCE
            ) as answer:
                return json.load(answer)

        return await asyncio.to_thread(asked)

    async def start(self, path: str, **payload: Any) -> int:
        """Start an execution and return its id."""
        return int((await self.ask("/api/execute", {"path": path, "payload": payload}))["execution_id"])

    async def status(self, execution_id: int, wait: int = 0) -> str:
        """Return how an execution stands, after so many seconds at most if it has not ended."""
        return str((await self.ask(f"/api/executions/{execution_id}?wait={wait}"))["status"])


def _begun(folder: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    with (folder / "server.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "noetl", "server", "--port", "0", "--workers-slots", "6"],
            cwd=folder, env=os.environ | environ | {"NOETL_PROJECTIONS__IN_SERVER": "false"},
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip


@asynccontextmanager
async def open_patient_server(folder: Path, environ: dict[str, str]) -> AsyncIterator[PatientServer]:
    """Give a server that knows the playbooks, and let nothing of it stay."""
    process = _begun(folder, environ)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    try:
        told = await asyncio.to_thread(lambda: next((one for one in lines if one.startswith("listening on ")), None))
        assert told is not None, (folder / "server.log").read_text()
        server = PatientServer(told.split()[-1])
        for playbook in (PLAYBOOK.read_text(), BESIDE):
            await server.ask("/api/catalog/register", {"content": playbook})
        yield server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def serving(api: PortionedApi) -> AsyncIterator[str]:
    """Give the address of the API for the time of the block."""
    async with listening(api.handle, 0) as url:
        yield url


async def saved_records(url: str) -> dict[str, int]:
    """Return how many records were saved of each kind."""
    connection: asyncpg.Connection = await asyncpg.connect(url)
    query = " UNION ALL ".join(f"SELECT '{kind}' AS kind, count(*) FROM public.{name}" for kind, name in TABLES.items())
    try:
        return {row["kind"]: row["count"] for row in await connection.fetch(query)}
    finally:
        await connection.close()
