"""What a worker brings to its work: tools, secrets, payloads and clocks of one organization, and how calls are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pyarrow

from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.port import Call, Credentials, Resources, Settling, Tool
from noetl.engine.worker.compiled_step import CompiledSteps, CompiledTask
from noetl.kernel.payloads.codec import ARROW_STREAM, decode_table, encode_table
from noetl.kernel.payloads.consumers import for_consumer
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.model.event import INLINE_LIMIT
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


class Redaction(Protocol):
    """Takes secrets out of what leaves the worker."""

    def redact(self, value: Any) -> Any:
        """Return the value without the secrets in use."""
        ...


class Secrets(Protocol):
    """Where a worker gets credentials and keychain entries from; what it hands out is redacted from then on."""

    @property
    def redaction(self) -> Redaction:
        """What knows the secrets handed out."""
        ...

    @property
    def credentials(self) -> Credentials:
        """The organization's credentials."""
        ...

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a playbook's keychain for an execution."""
        ...

    async def secret(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Return the fields of a secret that a task of the command's playbook asks for."""
        ...


@dataclass(frozen=True)
class LanesEnd:
    """What came of the frames that were worked off elsewhere for one command."""

    rows_done: int = 0
    rows_failed: int = 0
    claims: int = 0
    problem: Problem | None = None
    """Why not all of them could be."""


class Lanes(Protocol):
    """Works off the frames of a loop elsewhere, such as inside Spark's executors, each under its own lease."""

    async def work(self, grant: CommandGrant, worker: str, started: Callable[[str, str], Awaitable[None]]) -> LanesEnd:
        """Return once no frame is left; when cancelled, what runs elsewhere is stopped.

        `started` is told application and tag before the work begins; what an attempt before left is stopped first.
        """
        ...


FRAME_CTX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Services:
    """Shared by all the work of one worker."""

    scope: Scope
    tools: Mapping[str, Tool]
    secrets: Secrets
    store: PayloadStore
    resources: Resources
    find: Callable[[str], Awaitable[PayloadRef]]
    """Looks payloads up by their locators; see `Dispatch.reference`."""
    lanes: Lanes | None = None
    """Where frames run whose playbook asks for Spark; None where there is none."""
    inline_bytes: int = INLINE_LIMIT
    """Results of steps up to this size stand in their event."""
    frame_ctx_bytes: int = FRAME_CTX_BYTES
    """Bytes of shared values, as JSON, that the rows of one frame may set."""
    evaluating: Evaluating = field(default_factory=Evaluating)
    """Where templates are evaluated that take long, so that heartbeats go on."""
    steps: CompiledSteps = field(default_factory=CompiledSteps)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic

    async def beside(self, evaluate: Callable[[], Any]) -> Any:
        """Evaluate templates that take long beside the event loop."""
        return await self.evaluating.beside(self.scope, evaluate)


class ScopedPayloads:
    """The payload store as tools see it; what they store in it is without the secrets in use."""

    def __init__(
        self,
        store: PayloadStore,
        scope: Scope,
        redaction: Redaction,
        find: Callable[[str], Awaitable[PayloadRef]],
    ) -> None:
        self._store = store
        self._scope = scope
        self._redaction = redaction
        self._find = find

    async def store(
        self, data: bytes, media_type: str, *, rows: int | None = None, schema_digest: str | None = None
    ) -> PayloadRef:
        """Keep bytes."""
        without = self._redaction.redact(data)
        if without != data and media_type == ARROW_STREAM:
            # A table is no text: values are replaced in it, not bytes.
            table = decode_table(data)
            encoded = encode_table(pyarrow.table(self._redaction.redact(table.to_pydict()), schema=table.schema))
            without, schema_digest = encoded.data, encoded.schema_digest
        return await self._store.store(self._scope, without, media_type, rows=rows, schema_digest=schema_digest)

    async def fetch(self, ref: PayloadRef) -> bytes:
        """Return bytes."""
        return await self._store.fetch(self._scope, ref)

    async def view(self, ref: PayloadRef) -> memoryview:
        """Return bytes where they lie."""
        return await for_consumer(self._store, "reducer").view(self._scope, ref)

    async def find(self, locator: str) -> PayloadRef:
        """Return the reference a locator stands for."""
        return await self._find(locator)


class CallMaker:
    """Makes the calls of one command."""

    def __init__(self, services: Services, grant: CommandGrant, settling: Settling | None = None) -> None:
        self._prefix = f"{grant.execution_id}/{grant.command_id.rsplit('/', 1)[0]}"
        self._known: dict[str, Any] = {
            "owner": services.scope,
            "execution_id": grant.execution_id,
            "credentials": services.secrets.credentials,
            "payloads": ScopedPayloads(services.store, services.scope, services.secrets.redaction, services.find),
            "resources": services.resources,
            "secret": partial(services.secrets.secret, grant),
            "settling": settling,
        }

    def at(self, place: str | int) -> Callable[..., Call]:
        """Return what makes the calls of one run; `place` names the row, so that an effect has the same key in every try."""
        prefix, known = f"{self._prefix}/{place}", self._known

        def make(*, task: CompiledTask, run: int, **fields: Any) -> Call:
            return Call(key=f"{prefix}/{task.name}/{run}", **known, **fields)

        return make


def call_maker(
    services: Services, grant: CommandGrant, place: str, settling: Settling | None = None
) -> Callable[..., Call]:
    """Return what makes the calls of a single run."""
    return CallMaker(services, grant, settling).at(place)
