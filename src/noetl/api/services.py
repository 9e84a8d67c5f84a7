"""Everything a handler reaches: the parts that whoever starts a server connects, and what is made of them once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from noetl.api.access.hooks import HookGate, HookLimits
from noetl.api.connections.limits import ConnectionLimits
from noetl.api.connections.refusals import Reason
from noetl.api.execution_state import KnownExecutions, Reading
from noetl.api.routes.workers.lease_proofs import Leased
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.replay.replay import Replay
from noetl.kernel.replay.verify import Verifier
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.model.stream import Scope
from noetl.pipelines.pipelines import Pipelines
from noetl.services.credentials.local_secrets import LocalToken
from noetl.services.credentials.secret import Secret
from noetl.services.credentials.store import CredentialStore
from noetl.services.credentials.tokens import ApiTokens

if TYPE_CHECKING:
    from noetl.kernel.stream.write_path.facts import Facts
    from noetl.pipelines.tables.lake_files import LakeFiles
    from noetl.services.curated.reads import CuratedReads
    from noetl.services.query.queries import Queries
    from noetl.services.schedule.scheduler import Scheduler


class Keychains(Protocol):
    """What resolves the keychain of a playbook."""

    async def resolved(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values by entry, for the work on one command; what may not be shown is a secret."""
        ...

    async def asked_for(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Return the fields of a secret that a task of the command's playbook asks for, each a secret."""
        ...


class Meter(Protocol):
    """What the API tells about itself, and what it prints at `/metrics`."""

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request under the template of its route."""
        ...

    def connection_ended(self, reason: Reason) -> None:
        """Count a connection that took too much or too long."""
        ...

    def token_refused(self) -> None:
        """Count a token that is no good."""
        ...

    async def exposition(self) -> tuple[bytes, str]:
        """Return the text of all metrics and its media type."""
        ...


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts of one server.

    `database`, `ledger`, `history` and `catalog` answer people; `engine` and `worker_database` serve workers, with
    pools of their own, so that neither waits for the other.
    """

    engine: Engine
    database: Database
    worker_database: Database
    ledger: Ledger
    history: History
    catalog: Catalog
    payloads: PayloadStore
    replay: Replay
    verifier: Verifier
    credentials: CredentialStore | None
    """None where no master key is configured: credentials cannot be kept then."""
    tokens: ApiTokens
    secrets: Callable[[Scope], Keychains] | None = None
    """What resolves keychains for workers; None where there is no master key."""
    metrics: Meter
    mint: Callable[[], int]
    producer: str
    version: str
    auth_required: bool | None
    """Whether requests must carry a token; None where they must once the organization has had one."""
    default_scope: Scope
    """Whose a request without a token is, where none is required."""
    worker_secret: Secret | None = None
    """What workers without a token share with this server; None where tokens are always required."""
    local_token: LocalToken | None = None
    """What admits callers of this machine where no other token is required; None where nothing does."""
    pipelines: Pipelines | None = None
    """None where this server builds no datasets: there are no DAGs, datasets and tasks then."""
    lake: LakeFiles | None = None
    """Where the files of datasets are, for those who want to see rows."""
    queries: Queries | None = None
    """What answers SQL over datasets; None where this server answers none."""
    curated: CuratedReads | None = None
    """What reads curated views of all tenants; None where this server has none."""
    hook_limits: HookLimits = field(default_factory=HookLimits)
    scheduler: Scheduler | None = None
    """What runs schedules in this process; None where nothing does."""
    stages: Database | None = None
    """Where stages are projected; None is `database`."""
    facts: Facts | None = None
    """What records facts through the stream; None where they are appended to the ledger."""
    lost_facts: Callable[[], int] = lambda: 0
    """How many acknowledged facts the stream lost, as far as this server knows."""
    no_stream: str | None = None
    """Why this server cannot write while writes go through the stream; None where it can."""
    read_token_seconds: float = 10.0
    """How long a read waits for what its token stands for."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """What a connection may take."""
    max_payload_bytes: int = 8 * 1024 * 1024
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server drains: requests that wait answer at once."""
    openapi: bytes = b""
    """The description of all routes; the application that has them puts it here."""

    def mint_several(self, count: int) -> list[int]:
        """Return new ids."""
        return [self.mint() for _ in range(count)]

    @cached_property
    def leased(self) -> Leased:
        """The leases that this server gave to remote workers."""
        return Leased(self.engine, self.worker_database)

    @cached_property
    def reading(self) -> Reading:
        """Executions as people see them."""
        return Reading(self.history, self.payloads)

    @cached_property
    def known_executions(self) -> KnownExecutions:
        """Which executions there are, for those who name one."""
        return KnownExecutions(self.database, self.history)

    @cached_property
    def hooks(self) -> HookGate:
        """Who may send to webhooks."""
        return HookGate(self.database, self.payloads, self.credentials, self.hook_limits)
