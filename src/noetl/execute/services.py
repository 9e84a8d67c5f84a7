"""What a worker brings to its work: tools, secrets, payloads and clocks, bound to one organization."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from noetl.dispatch.grants import CommandGrant
from noetl.execute.compiled import CompiledSteps
from noetl.execute.tools.port import Credentials, Resources, Tool
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.port import PayloadStore
from noetl.playbook.model import Playbook


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


@dataclass(frozen=True)
class Services:
    """Shared by all the work of one worker."""

    scope: Scope
    tools: Mapping[str, Tool]
    secrets: Secrets
    store: PayloadStore
    resources: Resources
    steps: CompiledSteps = field(default_factory=CompiledSteps)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic


class ScopedPayloads:
    """The payload store as tools see it."""

    def __init__(self, store: PayloadStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    async def store(
        self, data: bytes, media_type: str, *, rows: int | None = None, schema_digest: str | None = None
    ) -> PayloadRef:
        """Keep bytes."""
        return await self._store.store(self._scope, data, media_type, rows=rows, schema_digest=schema_digest)

    async def fetch(self, ref: PayloadRef) -> bytes:
        """Return bytes."""
        return await self._store.fetch(self._scope, ref)
