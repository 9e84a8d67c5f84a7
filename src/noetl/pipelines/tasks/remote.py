"""Tasks handed out over the API, for workers in other processes. See `Tasks` for the promises.

A server that does not answer is asked again, with growing pauses: it recognises by its lease an end that was recorded by
a request whose answer got lost, so asking again never commits anything twice.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from noetl.engine.dispatch.remote import REQUEST_SECONDS, Token, pauses, unanswered
from noetl.errors import Conflict, Denied, InputError, LeaseLost, NoetlError, NotFound, Unavailable, Unsupported
from noetl.model.dataset import Manifest
from noetl.model.task import InputPart, TaskGrant, TaskLease, TaskReport, TaskStatus
from noetl.pipelines.tasks.port import BaseMoved

T = TypeVar("T")

MOST_WANTED: Final = 1_000
LONGEST_WAIT: Final = 60.0
_CONFLICTS: Final = frozenset({"conflict", "version_conflict", "already_recorded"})
_KINDS: Final[dict[int, type[NoetlError]]] = {
    400: InputError, 401: Denied, 403: Denied, 404: NotFound, 413: InputError, 422: InputError, 501: Unsupported,
}  # fmt: skip


class _Granted(msgspec.Struct):
    tasks: list[TaskGrant]


class _Task(msgspec.Struct):
    task: TaskGrant


class _Lost(msgspec.Struct):
    lost: list[TaskLease]


class _Status(msgspec.Struct):
    status: TaskStatus


class _Nothing(msgspec.Struct):
    """The answer to what has none."""


class _Moved(msgspec.Struct):
    output: int
    part: InputPart
    manifest: Manifest


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""
    title: str = ""
    hint: str | None = None
    moved: list[_Moved] = []


class RemoteTasks:
    """Bound to the organization of its token. `patience_seconds` bounds how long a report is sent again and again."""

    def __init__(self, url: str, token: Token | None = None, *, patience_seconds: float = 600.0) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        self._patience = patience_seconds
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def claim(
        self, worker: str, runtimes: Sequence[str], want: int, wait_seconds: float, *, like: str | None = None
    ) -> list[TaskGrant]:
        """Lease tasks of one job; while the server is away, wait for it, and return none when the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        waits = pauses()
        while True:
            left = max(0.0, min(LONGEST_WAIT, deadline - loop.time()))
            body = {"worker_id": worker, "runtimes": list(runtimes), "want": min(want, MOST_WANTED), "like": like}
            try:
                asked = self._once("/api/tasks/claim", {**body, "wait_seconds": left}, _Granted, wait=left)
                granted = (await asked).tasks
            except Unavailable:
                granted = []
                await asyncio.sleep(max(0.0, min(next(waits), deadline - loop.time())))
            if granted or loop.time() >= deadline:
                return granted

    async def fetch(self, lease: TaskLease) -> TaskGrant:
        """Return once more what was granted with a lease that is still held."""
        return (await self._sent("/api/tasks/fetch", {"lease": lease}, _Task)).task

    async def heartbeat(self, leases: Sequence[TaskLease]) -> list[TaskLease]:
        """Renew leases; while the server is away, ask again, for only the server knows what is lost."""
        if not leases:
            return []
        waits = pauses()
        while True:
            try:
                asked = self._once("/api/tasks/heartbeat", {"leases": list(leases)}, _Lost)
                return (await asked).lost
            except Unavailable:
                await asyncio.sleep(next(waits))

    async def started(self, grant: TaskGrant, application_id: str, job_tag: str) -> None:
        """Record where the work runs."""
        body = {"lease": grant.lease, "application_id": application_id, "job_tag": job_tag}
        await self._sent("/api/tasks/started", body, _Nothing)

    async def complete(
        self, grant: TaskGrant, report: TaskReport, manifests: Mapping[str, Manifest] | None = None
    ) -> TaskStatus:
        """Commit what an attempt wrote; the server reads the manifests by itself."""
        if report.status != "ok":
            return await self.fail(grant, report)
        before = None if report.operator_state is None else grant.operator_state
        return await self._ended("/api/tasks/complete", grant, {"report": report, "operator_state_before": before})

    async def fail(self, grant: TaskGrant, report: TaskReport) -> TaskStatus:
        """Record that an attempt came to nothing."""
        return await self._ended("/api/tasks/fail", grant, {"report": report})

    async def _ended(self, path: str, grant: TaskGrant, body: dict[str, Any]) -> TaskStatus:
        return (await self._sent(path, {"lease": grant.lease, **body}, _Status)).status

    async def _sent(self, path: str, body: Any, kind: type[T]) -> T:
        """Send a request until it is answered."""
        deadline = asyncio.get_running_loop().time() + self._patience
        waits = pauses()
        while True:
            try:
                return await self._once(path, body, kind)
            except Unavailable:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(next(waits))

    async def _once(self, path: str, body: Any, kind: type[T], *, wait: float = 0.0) -> T:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        try:
            async with self._session.post(
                self._url + path,
                data=io.BytesIO(msgspec.json.encode(body)),
                headers={**self._headers, "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS + wait),
            ) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise Unavailable(unanswered(self._url, problem)) from None
        if status >= 400:
            raise _refusal(status, data, f"POST {path}")
        # Ids are text in JSON.
        return msgspec.json.decode(data or b"{}", type=kind, strict=False)


def _refusal(status: int, data: bytes, what: str) -> NoetlError:
    try:
        problem = msgspec.json.decode(data, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(detail=f"{what} was answered with status {status}")
    if status == 409 and problem.moved:
        moved = {(one.output, one.part.partition_key): one for one in problem.moved}
        return BaseMoved(
            {place: one.part for place, one in moved.items()}, {place: one.manifest for place, one in moved.items()}
        )
    words, hint = problem.detail or problem.title, problem.hint
    if status == 409:
        kind = Conflict if problem.code in _CONFLICTS else LeaseLost
        return kind(words, hint=hint)
    return _KINDS.get(status, Unavailable)(words, hint=hint)
