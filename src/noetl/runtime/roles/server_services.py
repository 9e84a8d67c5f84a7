"""What a server's API is made of: connected parts go in, the services its routes call come out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial

from noetl import __version__
from noetl.api.access.hooks import HookLimits
from noetl.api.connections.listening import is_loopback
from noetl.api.services import Services
from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.dispatch.engine import Engine
from noetl.errors import ConfigError
from noetl.kernel.stream.write_path.facts import Facts
from noetl.model.stream import Scope
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.engine import catalog_of, producer_of
from noetl.runtime.assembly.pipelines import files_of
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.outgoing import rights_of
from noetl.runtime.secrets import LocalSecrets, open_keyring
from noetl.runtime.server_limits import limits_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import mirrors
from noetl.runtime.wiring import Runtime
from noetl.runtime.write_path.choice import lacking
from noetl.services.credentials.local_secrets import make_local_token, make_worker_secret
from noetl.services.credentials.store import CredentialStore
from noetl.services.credentials.tokens import ApiTokens
from noetl.services.curated.reads import CuratedReads
from noetl.services.query.queries import Queries
from noetl.services.schedule.scheduler import Scheduler

_log = logging.getLogger(__name__)


async def admission_of(people: Runtime, address: str) -> tuple[bool | None, bool]:
    """Tell whether requests must carry tokens (None: once there have been any), and whether an address for all may be opened."""
    wanted = people.settings.server.require_tokens
    # Beyond the loopback nobody is let in without a token, whether there has been one or not.
    required = True if wanted is None and not is_loopback(address) else wanted
    return required, bool(required) and await ApiTokens(people.database).any_live(people.scope)


def services_of(
    people: Runtime,
    runtime: Runtime,
    engine: Engine,
    pipelines: Pipelines,
    queries: Queries,
    curated: CuratedReads,
    scheduler: Scheduler,
    metrics: Metrics,
    facts: Facts | None,
    *,
    auth_required: bool | None,
) -> Services:
    """Connect what routes call: `people` answers reads, `runtime` and the engine serve workers."""
    credentials = _credentials(people)
    return Services(
        engine=engine,
        facts=facts,
        database=people.database,
        stages=people.projections.line_of("stage").database,
        worker_database=runtime.database,
        ledger=people.ledger,
        history=people.history,
        catalog=catalog_of(people, "server", engine.catalog.plans),
        payloads=people.payloads,
        replay=people.replay,
        verifier=people.verifier,
        credentials=credentials,
        secrets=None if credentials is None else cache(_secrets(people, engine.catalog.plans.evaluating)),
        tokens=ApiTokens(people.database),
        metrics=metrics,
        lost_facts=lambda: metrics.write_path.lost_facts,
        no_stream=None if mirrors(people.settings) else lacking(people.settings),
        mint=people.ids.mint,
        producer=producer_of(people, "server"),
        version=__version__,
        auth_required=auth_required,
        default_scope=people.scope,
        worker_secret=None if auth_required else make_worker_secret(people.settings.key_directory),
        local_token=None if auth_required else make_local_token(people.settings.key_directory),
        pipelines=pipelines,
        lake=files_of(people.settings),
        queries=queries,
        curated=curated,
        scheduler=scheduler,
        hook_limits=_hook_limits(people.settings),
        limits=limits_of(people.settings),
    )


def _secrets(people: Runtime, evaluating: Evaluating) -> Callable[[Scope], LocalSecrets]:
    """Return what gives the secrets of organizations, fetched with no more rights than each of them has here."""
    rights = rights_of(people.settings, people.database)
    return partial(LocalSecrets, people.settings, people.database, rights=rights, evaluating=evaluating)


def _hook_limits(settings: Settings) -> HookLimits:
    own = settings.sources
    return HookLimits(
        max_bytes=own.hook_max_bytes,
        window_seconds=own.hook_window_seconds,
        at_once=own.hooks_at_once,
        per_minute=own.hooks_per_minute,
    )


def _credentials(people: Runtime) -> CredentialStore | None:
    """Return the store of credentials, or None where no master key is configured."""
    try:
        return CredentialStore(people.database, open_keyring(people.settings))
    except ConfigError as problem:
        _log.warning("credentials cannot be kept: %s", problem.message)
        return None
