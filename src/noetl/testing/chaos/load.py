"""A client outside the installation: it records facts and starts executions, and writes down only what was acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp
import msgspec

FACT_TYPE: Final = "business.chaos.seen"
CHILD: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: chaos/child}
workload: {n: 0}
workflow:
  - step: double
    tool: {kind: python, input: {n: "{{ n }}"}, code: "result = {'n': 2 * n}"}
"""
WORK: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: work, path: chaos/work}
workload: {rows: 12}
workflow:
  - step: each
    loop:
      in: "{{ range(workload.rows) | list }}"
      iterator: n
      spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 3}}
    tool:
      kind: python
      input: {n: "{{ iter.n }}"}
      code: "result = {'n': n, 'text': str(n) * 600}"
    next: {arcs: [{step: child}]}
  - step: child
    tool: {kind: playbook, path: chaos/child, input: {n: "{{ each | length }}"}}
"""
DAG: Final = """
name: chaos
defaults: {max_attempts: 30}
jobs:
  - {name: numbers, sql: SELECT id FROM range(1000)}
  - {name: totals, inputs: [numbers], sql: "SELECT sum(id) AS total, count(*) AS numbers FROM numbers"}
publish: [totals]
"""
RETRY_SECONDS: Final = 0.25
FACT_CLIENTS: Final = 4
FACT_PAUSE_SECONDS: Final = 0.1
EXECUTION_PAUSE_SECONDS: Final = 3.0
EMISSION_PAUSE_SECONDS: Final = 20.0
REQUEST_SECONDS: Final = 20.0


class Acknowledged(msgspec.Struct):
    """What the installation said yes to; nothing else is counted on."""

    keyed_facts: set[int] = msgspec.field(default_factory=set)
    """Sent under a key until they were taken: each must stand once."""
    plain_facts: set[int] = msgspec.field(default_factory=set)
    """Sent once: each that was taken must stand once."""
    refused_facts: int = 0
    """Sent once and not acknowledged: each may stand once or not at all."""
    executions: dict[int, int] = msgspec.field(default_factory=dict)
    """By their number, each started under a key."""
    runs: set[int] = msgspec.field(default_factory=set)
    """Of the DAG."""
    retries: int = 0


class Load:
    """Works until it is told to stop; what is under way then is still tried until it is acknowledged."""

    def __init__(self, url: str, http: aiohttp.ClientSession, *, dag: bool) -> None:
        self.acknowledged = Acknowledged()
        self._url = url
        self._http = http
        self._dag = dag
        self._over = asyncio.Event()
        self._sent = 0

    async def register(self) -> None:
        """Register the playbooks, as soon as the server answers."""
        for content in (CHILD, WORK):
            await self._until_taken("/api/catalog/register", {"content": content}, None)

    async def run(self) -> None:
        """Send until `stop`, all kinds side by side."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(FACT_CLIENTS):
                tasks.create_task(self._facts(keyed=number % 2 == 0))
            tasks.create_task(self._executions())
            if self._dag:
                tasks.create_task(self._emissions())

    def stop(self) -> None:
        """Begin nothing new."""
        self._over.set()

    async def _facts(self, *, keyed: bool) -> None:
        while not await self._rest(FACT_PAUSE_SECONDS):
            self._sent += 1
            number = self._sent
            fact = {"event_type": FACT_TYPE, "aggregate_id": f"thing-{number % 7}", "context": {"n": number}}
            if keyed:
                await self._until_taken("/api/events", fact, f"fact-{number}")
                self.acknowledged.keyed_facts.add(number)
            elif await self._answer("/api/events", fact, None) is not None:
                self.acknowledged.plain_facts.add(number)
            else:
                self.acknowledged.refused_facts += 1

    async def _executions(self) -> None:
        number = 0
        while not await self._rest(EXECUTION_PAUSE_SECONDS):
            number += 1
            body = {"path": "chaos/work", "payload": {"rows": 6 + number % 18, "number": number}}
            started = await self._until_taken("/api/execute", body, f"execution-{number}")
            self.acknowledged.executions[number] = int(started["execution_id"])

    async def _emissions(self) -> None:
        number = 0
        while not await self._rest(EMISSION_PAUSE_SECONDS):
            number += 1
            run = await self._until_taken("/api/dags/chaos/jobs/numbers/emit", None, f"emission-{number}")
            self.acknowledged.runs.add(int(run["execution_id"]))

    async def _rest(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _until_taken(self, path: str, body: Any, key: str | None) -> Any:
        while (answer := await self._answer(path, body, key)) is None:
            self.acknowledged.retries += 1
            await asyncio.sleep(RETRY_SECONDS)
        return answer

    async def _answer(self, path: str, body: Any, key: str | None) -> Any:
        """Return what was acknowledged, or None where nothing was; a refusal for good is an error of this client."""
        headers = {} if key is None else {"Idempotency-Key": key}
        try:
            async with self._http.post(self._url + path, json=body, headers=headers) as answer:
                if answer.status in {200, 201}:
                    return await answer.json()
                if 400 <= answer.status < 500 and answer.status not in {408, 409, 425, 429}:
                    raise AssertionError(f"{path} was refused with {answer.status}: {await answer.text()}")
                return None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
