"""Dispatch over the API, for workers in other processes. See `Dispatch` for the promises.

A server that does not answer is asked again, with growing pauses: what was recorded by a request whose answer got lost is
recognised by its lease, so asking again never does anything twice.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from noetl.engine.dispatch.grants import Child, ChildEnd, CommandGrant, FrameGrant, FrameReport, FrameSoFar, LeaseRef
from noetl.engine.plan.locality import Wish
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import (
    ChildTooDeep,
    Conflict,
    Denied,
    FramesOpen,
    InputError,
    LeaseLost,
    NoetlError,
    NotFound,
    OutsideUnavailable,
    ReportRefused,
    Unavailable,
    Unsupported,
)
from noetl.language.playbook.model import Playbook
from noetl.language.playbook.parse import parse
from noetl.model.payload_ref import PayloadRef

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 3.0
REQUEST_SECONDS = 60.0
"""How long one request may take, besides the time it asks the server to wait."""
CHILD_SECONDS = 30.0
_KEPT_PLAYBOOKS = 256
_ENDED = frozenset({"already_terminal", "frame_already_terminal"})


class Token(Protocol):
    """A secret that shows itself only when asked to."""

    def reveal(self) -> str:
        """Return the token itself."""
        ...


class _Commands(msgspec.Struct):
    commands: list[CommandGrant]


class _NextCommand(msgspec.Struct):
    next: CommandGrant | None


class _Frames(msgspec.Struct):
    frames: list[FrameGrant]


class _Frame(msgspec.Struct):
    frame: FrameGrant


class _NextFrame(msgspec.Struct):
    next: FrameGrant | None


class _Lost(msgspec.Struct):
    lost: list[LeaseRef]


class _Ended(msgspec.Struct):
    ended: list[int]


class _Child(msgspec.Struct):
    end: ChildEnd | None


class _Ctx(msgspec.Struct):
    ctx: dict[str, Any]


class _Source(msgspec.Struct):
    content: str


class _Nothing(msgspec.Struct):
    """The answer to what has none."""


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""
    title: str = ""
    hint: str | None = None


class RemoteDispatch:
    """Bound to the organization of its token. `patience_seconds` bounds how long a report is sent again and again."""

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        kinds: Collection[str] = (),
        patience_seconds: float = 600.0,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        self._kinds = kinds
        self._patience = patience_seconds
        self._session: aiohttp.ClientSession | None = None
        self._playbooks: OrderedDict[str, Playbook] = OrderedDict()
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def claim(
        self, worker: str, want: int, wait_seconds: float, wish: Wish | None = None, loops: int | None = None
    ) -> list[CommandGrant]:
        """Lease commands; while the server is away, wait for it, and return none when the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        waits = pauses()
        while True:
            left = max(0.0, min(60.0, deadline - loop.time()))
            body: dict[str, Any] = {"worker_id": worker, "want": min(want, 100), "wait_seconds": left}
            if wish is not None:
                body["locality"] = wish
            if loops is not None:
                body["loops"] = loops
            try:
                return (await self._once("POST", "/api/commands/claim", body, _Commands, wait=left)).commands
            except Unavailable:
                await asyncio.sleep(next(waits))
            if loop.time() >= deadline:
                return []

    async def complete(
        self, grant: CommandGrant, report: CommandEnded, *, worker: str, take_next: bool
    ) -> CommandGrant | None:
        """Record an end and what follows."""
        body = {"lease": _command(grant), "worker_id": worker or "-", "report": report, "take_next": take_next}
        try:
            return (await self._sent("/api/commands/complete", body, _NextCommand)).next
        except _Doubtful:
            return None  # it was recorded by a request whose answer got lost

    async def started(self, grant: CommandGrant, application_id: str, job_tag: str) -> None:
        """Record where the work runs."""
        body = {"lease": _command(grant), "application_id": application_id, "job_tag": job_tag}
        with suppress(_Doubtful):
            await self._sent("/api/commands/started", body, _Nothing)

    async def stalled(self, grant: CommandGrant, part: str, reason: str | None, number: int) -> None:
        """Record that a command waits, or goes on; a server that is away is not asked again."""
        body = {"lease": _command(grant), "part": part, "reason": reason and reason[:10_000], "number": number}
        await self._once("POST", "/api/commands/stalled", body, _Nothing)

    async def give_back(self, grant: CommandGrant, reason: str, *, delay_seconds: float, counts: bool = True) -> None:
        """Record that an attempt came to nothing, or that it was handed back."""
        body = {"lease": _command(grant), "reason": reason[:10_000], "delay_seconds": delay_seconds}
        if not counts:
            body["counts"] = False
        try:
            await self._sent("/api/commands/give-back", body, _Nothing)
        except _Doubtful:
            return

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Renew leases; while the server is away, ask again, for only the server knows what is lost."""
        waits = pauses()
        while True:
            try:
                return (await self._once("POST", "/api/leases/heartbeat", _proofs(leases), _Lost)).lost
            except Unavailable:
                await asyncio.sleep(next(waits))

    async def lost(self, leases: Sequence[LeaseRef], so_far: Sequence[FrameSoFar] = ()) -> list[LeaseRef]:
        """Ask which commands were taken away."""
        said = [
            msgspec.to_builtins(one) | {"stage_id": str(one.stage_id), "frame_id": str(one.frame_id)} for one in so_far
        ]
        return (await self._once("POST", "/api/leases/lost", _proofs(leases) | {"so_far": said}, _Lost)).lost

    async def next_frame(self, grant: CommandGrant, worker: str, wish: Wish | None = None) -> FrameGrant | None:
        """Lease the next frame of a slot's stage."""
        body: dict[str, Any] = {"lease": _command(grant), "worker_id": worker}
        if wish is not None:
            body["locality"] = wish
        frames = (await self._sent(f"/api/stages/{_stage(grant)}/frames/claim", body, _Frames)).frames
        return frames[0] if frames else None

    async def dispatch_rows(self, grant: CommandGrant, worker: str, rows: PayloadRef, row_count: int) -> FrameGrant:
        """Record claimed rows as a frame."""
        body = {"lease": _command(grant), "worker_id": worker, "rows": rows, "row_count": row_count}
        path = f"/api/stages/{_stage(grant)}/frames/dispatch"
        return (await self._sent(path, body, _Frame, key=uuid.uuid4().hex)).frame

    async def commit_frame(
        self, grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
    ) -> FrameGrant | None:
        """Record what a frame came to."""
        body = {
            "lease": _frame(frame),
            "command": _command(grant),
            "worker_id": worker,
            "report": report,
            "take_next": take_next,
        }
        try:
            return (await self._sent(f"/api/frames/{frame.frame_id}/commit", body, _NextFrame)).next
        except _Doubtful:
            return await self.next_frame(grant, worker) if take_next else None

    async def fail_frame(self, frame: FrameGrant, error: dict[str, Any], *, max_attempts: int, worker: str) -> None:
        """Record that an attempt at a frame failed."""
        body = {"lease": _frame(frame), "worker_id": worker, "error": error, "max_attempts": max_attempts}
        try:
            await self._sent(f"/api/frames/{frame.frame_id}/fail", body, _Nothing)
        except _Doubtful:
            return

    async def checkpoint(self, frame: FrameGrant, cursor: dict[str, Any]) -> None:
        """Record how far a frame got."""
        body = {"lease": _frame(frame), "cursor": cursor}
        await self._sent(f"/api/frames/{frame.frame_id}/checkpoint", body, _Nothing)

    async def playbook(self, catalog_id: str) -> Playbook:
        """Return a playbook version, read here from its source; versions never change, so they are kept."""
        # Slots that begin together ask for the same version: the first reads, the others wait for it.
        async with self._reading:
            found = self._playbooks.get(catalog_id)
            if found is None:
                source = await self._sent(f"/api/catalog/{catalog_id}", None, _Source, method="GET")
                found = self._playbooks[catalog_id] = parse(source.content, kinds=self._kinds).playbook
                if len(self._playbooks) > _KEPT_PLAYBOOKS:
                    self._playbooks.popitem(last=False)
            self._playbooks.move_to_end(catalog_id)
            return found

    async def run_child(self, grant: CommandGrant, child: Child) -> ChildEnd:
        """Run a child execution to its end."""
        body = {"lease": _command(grant), "child": child, "wait_seconds": CHILD_SECONDS}
        while True:
            end = (await self._sent("/api/commands/children", body, _Child, wait=CHILD_SECONDS)).end
            if end is not None:
                return end

    async def reference(self, locator: str) -> PayloadRef:
        """Ask which reference a locator stands for."""
        return await self._sent(f"/api/result/reference?ref={quote(locator, safe='')}", None, PayloadRef, method="GET")

    async def loop_ctx(self, grant: CommandGrant) -> dict[str, Any]:
        """Return what committed frames have set."""
        return (await self._sent(f"/api/stages/{_stage(grant)}/ctx", {"lease": _command(grant)}, _Ctx)).ctx

    async def ended(self, executions: Sequence[int]) -> list[int]:
        """Ask which executions have ended."""
        body = {"executions": [str(one) for one in executions]}
        return (await self._once("POST", "/api/leases/ended", body, _Ended)).ended

    async def _sent(
        self,
        path: str,
        body: Any,
        kind: type[T],
        *,
        method: str = "POST",
        key: str | None = None,
        wait: float = 0.0,
    ) -> T:
        """Send a request until it is answered; a refusal that an earlier try of the same request explains is `_Doubtful`."""
        deadline = asyncio.get_running_loop().time() + self._patience
        waits = pauses()
        repeated = False
        while True:
            try:
                return await self._once(method, path, body, kind, key=key, wait=wait)
            except FramesOpen:
                raise  # asking again would not help: the slot has to take those frames
            except Unavailable:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            except LeaseLost as problem:
                if repeated and problem.details.get("code") in _ENDED:
                    raise _Doubtful from None
                raise
            repeated = True
            await asyncio.sleep(next(waits))

    async def _once(
        self, method: str, path: str, body: Any, kind: type[T], *, key: str | None = None, wait: float = 0.0
    ) -> T:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        headers = {**self._headers, "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        try:
            async with self._session.request(
                method,
                self._url + path,
                data=None if body is None else io.BytesIO(msgspec.json.encode(body)),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS + wait),
            ) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise Unavailable(unanswered(self._url, problem)) from None
        if status >= 400:
            raise _refusal(status, data, f"{method} {path}")
        # Ids are text in JSON.
        return msgspec.json.decode(data or b"{}", type=kind, strict=False)


class _Doubtful(Exception):
    """The work had ended when a request was sent again: an earlier try ended it."""


def pauses() -> Iterator[float]:
    """Yield how long to wait before a server is asked again, longer each time."""
    pause = FIRST_PAUSE
    while True:
        # Spread, so that workers that lost their server together do not come back together.
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311
        pause = min(LONGEST_PAUSE, pause * 2)


def unanswered(url: str, problem: Exception) -> str:
    """Say why a server does not answer."""
    number, told = (problem.errno, problem.strerror) if isinstance(problem, OSError) else (None, None)
    reason = os.strerror(number) if number and number > 0 else told or str(problem) or type(problem).__name__
    return f"the server at {url} does not answer: {reason}"


def _refusal(status: int, data: bytes, what: str) -> NoetlError:
    try:
        problem = msgspec.json.decode(data, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(detail=f"{what} was answered with status {status}")
    words, hint = problem.detail or problem.title, problem.hint
    if status == 409:
        kind = Conflict if problem.code in ("conflict", "stage_not_open", "version_conflict") else LeaseLost
        return kind(words, hint=hint, code=problem.code)
    if problem.code == FramesOpen.code:
        return FramesOpen(words, hint=hint)
    if problem.code == OutsideUnavailable.code:
        return OutsideUnavailable(words, hint=hint)
    if status >= 502 or status in (408, 429):
        return Unavailable(words, hint=hint)
    if status in (401, 403):
        return Denied(words, hint=hint)
    if status == 404:
        return NotFound(words, hint=hint)
    if problem.code == ChildTooDeep.code:
        return ChildTooDeep(words, hint=hint)
    if problem.code == ReportRefused.code:
        return ReportRefused(words, hint=hint)
    if status in (400, 413, 422):
        return InputError(words, hint=hint)
    return Unsupported(words, hint=hint) if status == 501 else Unavailable(words, hint=hint)


def _proofs(leases: Sequence[LeaseRef]) -> dict[str, Any]:
    return {"leases": [msgspec.to_builtins(lease) | {"execution_id": str(lease.execution_id)} for lease in leases]}


def _stage(grant: CommandGrant) -> int:
    assert grant.loop is not None
    return grant.loop.stage_id


def _command(grant: CommandGrant) -> dict[str, Any]:
    return {
        "execution_id": str(grant.execution_id),
        "command_id": grant.command_id,
        "attempt": grant.attempt,
        "token": grant.token,
    }


def _frame(frame: FrameGrant) -> dict[str, Any]:
    return {"execution_id": str(frame.execution_id), "attempt": frame.attempt, "token": frame.token}
