"""Everything the API stands on, connected by whoever starts a server. Values and ports only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from noetl.catalog.playbooks import Catalog
from noetl.credentials.store import CredentialStore
from noetl.credentials.tokens import ApiTokens
from noetl.dispatch.engine import Engine
from noetl.ledger.database import Database
from noetl.ledger.history import History
from noetl.ledger.postgres import PostgresLedger
from noetl.model.stream import Scope
from noetl.payloads.port import PayloadStore
from noetl.pipelines.pipelines import Pipelines
from noetl.replay.replay import Replay
from noetl.replay.verify import Verifier

if TYPE_CHECKING:
    from noetl.pipelines.lake_files import LakeFiles


class Meter(Protocol):
    """What the API tells about itself, and what it prints at `/metrics`."""

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request under the template of its route."""
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
    ledger: PostgresLedger
    history: History
    catalog: Catalog
    payloads: PayloadStore
    replay: Replay
    verifier: Verifier
    credentials: CredentialStore | None
    """None where no master key is configured: credentials cannot be kept then."""
    tokens: ApiTokens
    metrics: Meter
    mint: Callable[[], int]
    producer: str
    version: str
    auth_required: bool
    default_scope: Scope
    """Whose a request without a token is, where none is required."""
    pipelines: Pipelines | None = None
    """None where this server builds no datasets: there are no DAGs, datasets and tasks then."""
    lake: LakeFiles | None = None
    """Where the files of datasets are, for those who want to see rows."""
    max_body_bytes: int = 16 * 1024 * 1024
    max_payload_bytes: int = 8 * 1024 * 1024
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server drains: requests that wait answer at once."""
