"""The network between workers and servers: the workers' own client and the servers' own routes, with messages between them that
are lost, late or repeated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec

from noetl.api import wire
from noetl.api.access.admission import Admission
from noetl.api.endpoint import WORKERS, Call, Caller, Endpoint
from noetl.api.problems import described
from noetl.api.routes.workers import commands, frames, leases, stages
from noetl.api.routes.workers.lease_proofs import Leased
from noetl.api.services import Services
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.remote import RemoteDispatch, _refusal
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.ledger.memory_work import MemoryWork
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.language.playbook.model import Playbook
from noetl.model.stream import Scope
from noetl.testing.simulation.faults import MessageFault
from noetl.testing.simulation.world.process import Died, Process

T = TypeVar("T")

ROUTES = tuple(
    (one.method, re.compile(re.sub(r"\{(\w+)(:\w+)?\}", r"(?P<\1>[^/]+)", one.path)), one)
    for module in (commands, frames, stages, leases)
    for one in module.routes.endpoints
)
BROKEN_SECONDS = 2.0
"""After which time somebody whose message was lost learns that the connection is broken."""


class MemoryLeased(Leased):
    """The leases a server gave out, looked up in the rows of a ledger in memory."""

    def __init__(self, engine: Engine, work: MemoryWork) -> None:
        super().__init__(engine, cast(Any, None))
        self._work = work

    async def _row(self, scope: Scope, query: str, *values: Any) -> Any:
        table = "frame" if "noetl.frame" in query else "command"
        execution_id, name = values
        row = self._work.row(scope, table, execution_id, str(name))
        if row is None:
            return None
        lease = self._work.lease(scope, table, execution_id, str(name))
        found = {
            name: int(value) if name.endswith("_id") and str(value).isdecimal() else value
            for name, value in row.items()
        }
        found |= {"lasts": lease is not None and lease.until > self._work.now(), "lease_until": lease and lease.until}
        if table == "frame":
            stage = self._work.row(scope, "stage", execution_id, row["stage_id"])
            assert stage is not None, "a frame stands only with its stage"
            found |= {
                "step_name": stage["step_name"],
                "max_attempts": stage["frame_policy"].get("max_attempts"),
                "checkpoint": row["checkpoint"] and msgspec.json.encode(row["checkpoint"]),
            }
        return found


class Request:
    """What a handler sees of a request: its headers, and whether anybody still waits for the answer."""

    def __init__(self, key: str | None) -> None:
        self.headers = {} if key is None else {"idempotency-key": key}
        self.is_open = True

    async def is_disconnected(self) -> bool:
        """Tell whether the client is gone."""
        return not self.is_open


class Door:
    """A server's side: finds the route of a request and answers."""

    def __init__(
        self,
        process: Process,
        engine: Engine,
        admission: Admission,
        work: MemoryWork,
        scope: Scope,
        payloads: PayloadStore,
    ) -> None:
        self.process = process
        self.admission = admission
        self.engine = engine
        self._scope = scope
        self._services = cast(
            Services,
            SimpleNamespace(
                engine=engine,
                leased=MemoryLeased(engine, work),
                payloads=payloads,
                stopping=asyncio.Event(),
                catalog=engine.catalog,
            ),
        )

    async def answer(self, method: str, path: str, data: bytes, request: Request) -> tuple[int, bytes]:
        """Return status and body."""
        try:
            if path.startswith("/api/catalog/"):
                entry = await self.engine.catalog.by_id(self._scope, path.rpartition("/")[2])
                return 200, msgspec.json.encode({"content": entry.content})
            for known, pattern, endpoint in ROUTES:
                if known == method and (match := pattern.fullmatch(path)):
                    return 200, await self._handled(endpoint, match.groupdict(), data, request)
            return 404, b"{}"
        except NoetlError as problem:
            found = described(problem)
            return found.status, msgspec.json.encode(found)

    async def _handled(self, endpoint: Endpoint, names: dict[str, str], data: bytes, request: Request) -> bytes:
        call = Call(self._services, Caller(self._scope, WORKERS, "simulated"), cast(Any, request), _admitted)
        given: dict[str, Any] = {name: endpoint.parameters[name](value) for name, value in names.items()}
        if endpoint.body is not None:
            given["body"] = wire.decode(endpoint.body, data)
        answer = await endpoint.handle(call, **given)
        return b"{}" if answer is None else wire.encode(answer, endpoint.answer)


async def _admitted() -> None:
    """Go on admitting workers."""


class Wire:
    """A worker's way to the servers. `faults` says by its number what happens to a message."""

    def __init__(
        self,
        process: Process,
        doors: Callable[[], list[Door]],
        faults: Callable[[], MessageFault | None],
        told: Callable[[str, str, MessageFault | None], None],
        acknowledged: Callable[[str, int, str], None],
    ) -> None:
        self._process = process
        self._doors = doors
        self._faults = faults
        self._told = told
        self._acknowledged = acknowledged

    def acknowledged(self, path: str, body: Any) -> None:
        """Tell that an end is recorded, as far as the worker knows."""
        if path == "/api/commands/complete":
            lease = body["lease"]
            self._acknowledged("command", int(lease["execution_id"]), lease["command_id"])
        elif path.endswith("/commit"):
            self._acknowledged("frame", int(body["lease"]["execution_id"]), path.split("/")[3])

    async def send(self, method: str, path: str, data: bytes, key: str | None, seconds: float) -> tuple[int, bytes]:
        """Send a request and return the answer; OSError where none comes."""
        process, fault = self._process, self._faults()
        await process.step()
        self._told(process.name, path, fault)
        open_doors = [door for door in self._doors() if door.process.is_alive]
        if not open_doors:
            await asyncio.sleep(0.1)
            raise ConnectionRefusedError
        door = process.random.choice(open_doors)
        kind = fault.kind if fault is not None else "none"
        if kind == "lose_request":
            await asyncio.sleep(BROKEN_SECONDS)
            raise ConnectionResetError
        if fault is not None and kind == "late_request":
            # What is late arrives, though its sender has long given it up.
            self._deliver(door, method, path, data, key, after=fault.seconds)
            await asyncio.sleep(BROKEN_SECONDS)
            raise ConnectionResetError
        if fault is not None and kind == "repeat":
            self._deliver(door, method, path, data, key, after=fault.seconds)
        request, reply = self._deliver(door, method, path, data, key)
        try:
            async with asyncio.timeout(seconds):
                answer = await reply
                if kind == "lose_answer":
                    raise ConnectionResetError
                if fault is not None and kind == "late_answer":
                    await asyncio.sleep(fault.seconds)
                return answer
        finally:
            request.is_open = False

    def _deliver(
        self, door: Door, method: str, path: str, data: bytes, key: str | None, after: float = 0.0
    ) -> tuple[Request, asyncio.Future[tuple[int, bytes]]]:
        request, reply = Request(key), asyncio.get_running_loop().create_future()

        def broken() -> None:
            if not reply.done():
                reply.set_exception(ConnectionResetError())
                reply.exception()

        async def serve() -> None:
            try:
                answer = await door.answer(method, path, data, request)
            except (Died, asyncio.CancelledError):
                broken()
                raise
            except Exception as problem:
                answer = (500, msgspec.json.encode({"code": "internal", "detail": repr(problem)}))
            if not reply.done():
                reply.set_result(answer)

        def arrive() -> None:
            if door.process.is_alive:
                door.process.spawn(serve(), f"serve {path}")
            else:
                broken()

        door.process.on_death.append(broken)
        if after:
            asyncio.get_running_loop().call_later(after, arrive)
        else:
            arrive()
        return request, reply


class SimulatedDispatch(RemoteDispatch):
    """The workers' client, on a simulated wire."""

    def __init__(self, way: Wire) -> None:
        super().__init__("http://simulated")
        self._way = way

    async def _once(
        self, method: str, path: str, body: Any, kind: type[T], *, key: str | None = None, wait: float = 0.0
    ) -> T:
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            status, answer = await self._way.send(method, path, data, key, 10.0 + wait)
        except (TimeoutError, OSError) as problem:
            raise Unavailable(f"no answer: {type(problem).__name__}") from None
        if status >= 400:
            raise _refusal(status, answer, f"{method} {path}")
        self._way.acknowledged(path, body)
        return msgspec.json.decode(answer, type=kind, strict=False)

    async def playbook(self, catalog_id: str) -> Playbook:
        """Return a playbook version."""
        found = self._playbooks.get(catalog_id)
        if found is None:
            source = await self._sent(f"/api/catalog/{catalog_id}", None, _Source, method="GET")
            found = self._playbooks[catalog_id] = checked(source.content).playbook
        return found


class _Source(msgspec.Struct):
    content: str


@lru_cache(64)
def checked(text: str) -> CheckedPlaybook:
    """Return a playbook that may be registered; each text is read once for all worlds."""
    return CheckedPlaybook(text)
