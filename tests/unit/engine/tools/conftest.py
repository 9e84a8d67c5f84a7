"""What tests of tools need: calls, shared resources, a payload store, credentials and a NATS server of their own."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.resources import WorkerResources
from noetl.errors import NotFound
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

OWNER = Scope("acme", "sales")
CallOf = Callable[..., Call]


class KnownCredentials(dict[str, Credential]):
    """Credentials by name."""

    async def credential(self, name: str) -> Credential:
        if name not in self:
            raise NotFound(f"there is no credential {name!r}")
        return self[name]


class OwnersPayloads:
    """A payload store in memory, bound to one organization."""

    def __init__(self) -> None:
        self.whole = MemoryPayloadStore()
        self.stored: list[PayloadRef] = []

    async def store(
        self, data: bytes, media_type: str, *, rows: int | None = None, schema_digest: str | None = None
    ) -> PayloadRef:
        ref = await self.whole.store(OWNER, data, media_type, rows=rows, schema_digest=schema_digest)
        self.stored.append(ref)
        return ref

    async def fetch(self, ref: PayloadRef) -> bytes:
        return await self.whole.fetch(OWNER, ref)

    async def view(self, ref: PayloadRef) -> memoryview:
        return await self.whole.view(OWNER, ref)

    async def find(self, locator: str) -> PayloadRef:
        """Look among what was stored here, as a worker looks among what events refer to."""
        found = next((ref for ref in self.stored if ref.uri == locator), None)
        if found is None:
            raise NotFound(f"no event refers to {locator}")
        return found


def _from_outside(number: int) -> int:
    """Return the number by which we know a process of ours that gave the number it has in its own namespace."""
    for one in psutil.Process().children(recursive=True):
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
            numbers = next(line for line in lines if line.startswith("NSpid:")).split()[1:]
            if len(numbers) > 1 and int(numbers[-1]) == number:
                return one.pid
    return number


class Processes:
    """Tells of processes that code under test starts: it writes their numbers to a pipe in the file system."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "processes"
        os.mkfifo(self.place)
        # Held open for writing too, so that a writer that leaves is not the end.
        self._pipe = os.open(self.place, os.O_RDWR | os.O_NONBLOCK)

    async def written(self) -> list[int]:
        """Wait for a line of numbers."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(self._pipe, lambda: line.done() or line.set_result(os.read(self._pipe, 4096)))
        try:
            async with asyncio.timeout(30):
                return [_from_outside(int(word)) for word in (await line).split()]
        finally:
            loop.remove_reader(self._pipe)

    def run(self, *pids: int) -> bool:
        """Whether all of them run; one that ended and was not taken note of yet does not."""
        return all(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)

    async def ended(self, *pids: int) -> bool:
        """Wait until none of them runs."""
        return all([await asyncio.to_thread(self._ended, pid) for pid in pids])

    def _ended(self, pid: int) -> bool:
        try:
            handle = os.pidfd_open(pid)
        except (ProcessLookupError, FileNotFoundError):
            # Gone, or being taken off the table this moment: newer kernels tell the two apart.
            return True
        try:
            return bool(select.select([handle], [], [], 30)[0])
        finally:
            os.close(handle)

    def close(self) -> None:
        os.close(self._pipe)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """What processes of the code under test do."""
    told = Processes(tmp_path)
    yield told
    told.close()


@pytest.fixture
async def resources() -> AsyncIterator[WorkerResources]:
    """What the tools of one worker share, closed at the end."""
    shared = WorkerResources()
    yield shared
    await shared.aclose()


@pytest.fixture
def credentials() -> KnownCredentials:
    """Credentials that a test adds to."""
    return KnownCredentials()


@pytest.fixture
def payloads() -> OwnersPayloads:
    """The payload store of the calls."""
    return OwnersPayloads()


@pytest.fixture
def call_of(resources: WorkerResources, credentials: KnownCredentials, payloads: OwnersPayloads) -> CallOf:
    """Make calls: `call_of(kind, option=..., input={...})`."""

    def make(
        kind: str,
        *,
        input: dict[str, Any] | None = None,  # noqa: A002
        scope: dict[str, Any] | None = None,
        auth: Any = None,
        timeout: float | None = 30.0,
        key: str = "1/step/task/row",
        owner: Scope = OWNER,
        options: dict[str, Any] | None = None,
        **more: Any,
    ) -> Call:
        return Call(
            kind=kind,
            options={**(options or {}), **more},
            input=input or {},
            auth=auth,
            scope=scope or {},
            timeout=timeout,
            key=key,
            owner=owner,
            execution_id=1,
            credentials=credentials,
            payloads=payloads,
            resources=resources,
        )

    return make
