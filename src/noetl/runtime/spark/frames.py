"""How Spark's executors reach what rows are worked off with: told as plain values here, connected again over there.

Either straight to the database and the payload store, or to a server's API where the worker itself has no more.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import orjson
from pydantic import BaseModel
from pydantic import Secret as SettingSecret

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant, LeaseRef
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.dispatch.stores import postgres_stores
from noetl.engine.tools.registry import known_kinds, load_tools
from noetl.engine.tools.resources import WorkerResources, keep_scratch
from noetl.engine.worker.services import Services
from noetl.kernel.leases.heartbeats import Renewing
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.consumers import for_consumer
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.runtime.locality import process_locator
from noetl.runtime.node_number import Ids
from noetl.runtime.secrets import LocalSecrets
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.wiring import open_payloads
from noetl.services.credentials.secret import Secret
from noetl.spark.drivers.pool import Drivers
from noetl.spark.frames.pool import FramePool

if TYPE_CHECKING:
    from noetl.engine.dispatch.remote import RemoteDispatch

POOL_MAX: Final = 3
"""Connections of one lane, besides the one that beats."""
_TOLD: Final = ("runtime", "database", "serialization", "payload_store")
"""The settings executors need; no others travel."""
_BEGUN = sql_texts(types_of_attempts("begun", at="frame"))
_DONE = sql_texts(types_of_attempts("completed", at="frame"))
_COMMITTED = f"""
SELECT e.meta ->> 'frame_index' AS frame_index, e.payload_ref FROM noetl.event AS e JOIN noetl.event AS d
  ON d.execution_id = e.execution_id AND d.frame_id = e.frame_id
  AND d.event_type IN ({_BEGUN}) AND d.meta ->> 'attempt' = e.meta ->> 'attempt'
WHERE e.execution_id = $1 AND e.loop_id = $2 AND e.event_type IN ({_DONE})
  AND d.meta ->> 'worker' = $3 AND e.payload_ref IS NOT NULL ORDER BY e.event_id
"""  # noqa: S608 - ours


def frame_pool(
    settings: Settings, scope: Scope, *, database: Database | None = None, url: str = "", token: Secret | None = None
) -> FramePool:
    """Return the Spark of a worker: its executors use the database, or the server at `url` where there is none."""
    told = {name: _plain(getattr(settings, name)) for name in _TOLD}
    told["database"] |= {"owner_url": None} if database is not None else {"owner_url": None, "url": None}
    reach: dict[str, Any] = {"opener": f"{__name__}:OnExecutor", "settings": told, "host": socket.gethostname()}
    if database is not None:
        reach |= {"database_url": database.url, "as_roles": settings.database.url is None}
    else:
        reach |= {"url": url, "token": None if token is None else token.reveal()}

    def drivers() -> Drivers:
        own = settings.spark
        return Drivers(
            spark_options(own, settings.lake, settings.runtime.home),
            live=own.drivers,
            isolate=own.isolation == "organization",
        )

    return FramePool(scope, reach, drivers)


class OnExecutor:
    """What an executor connects to, made from what it was told."""

    def __init__(self, reach: dict[str, Any]) -> None:
        self._reach = reach
        settings, host = reach["settings"], socket.gethostname()
        if reach.get("host", host) != host:
            # Another machine is another node, whose memory the worker does not share.
            settings = {**settings, "runtime": {**settings["runtime"], "node_id": host}}
        self._settings = Settings.model_validate(settings)
        own = self._settings.runtime
        self._scope = Scope(own.tenant_id, own.organization_id)

    @asynccontextmanager
    async def work(self) -> AsyncIterator[tuple[Services, Dispatch]]:
        """Connect tools, secrets, payloads and dispatch."""
        async with AsyncExitStack() as stack:
            dispatch, secrets = await (self._direct(stack) if "database_url" in self._reach else self._remote(stack))
            resources = WorkerResources()
            stack.push_async_callback(resources.aclose)
            await keep_scratch(resources, self._settings.cache_directory / "scratch")
            tools = load_tools({"python": {"cache": self._settings.cache_directory / "python"}})
            store = for_consumer(open_payloads(self._settings), "spark")
            services = Services(
                scope=self._scope, tools=tools, secrets=secrets, store=store, resources=resources,
                find=dispatch.reference, frame_ctx_bytes=self._settings.runtime.scheduler.max_frame_ctx_bytes,
            )  # fmt: skip
            yield services, dispatch

    @asynccontextmanager
    async def beats(self) -> AsyncIterator[Renewing[LeaseRef]]:
        """Connect what renews leases with one connection."""
        async with AsyncExitStack() as stack:
            if "database_url" in self._reach:
                yield self._engine(self._database(stack, 1), stack, _no_ids, _no_ids).dispatch(self._scope)
            else:
                yield self._remote_dispatch(stack)

    async def committed(self, grant: CommandGrant, worker: str) -> list[tuple[int, PayloadRef]]:
        """Return the frames of a loop that a worker has committed; a server does not tell, and gives none."""
        if "database_url" not in self._reach or grant.loop is None:
            return []
        async with AsyncExitStack() as stack:
            database = self._database(stack, 1)
            async with database.transaction(self._scope) as connection:
                rows = await connection.fetch(_COMMITTED, grant.execution_id, grant.loop.loop_id, worker)
        return [
            (int(row["frame_index"]), msgspec.convert(orjson.loads(row["payload_ref"]), PayloadRef)) for row in rows
        ]

    def payloads(self) -> Callable[[PayloadRef], Awaitable[memoryview]]:
        """Return what gives the bytes of a payload, where they lie if this node has them in memory."""
        return partial(for_consumer(open_payloads(self._settings), "spark").view, self._scope)

    async def _direct(self, stack: AsyncExitStack) -> tuple[Dispatch, Any]:
        database = self._database(stack, POOL_MAX)
        ids = Ids(database)
        await ids.open()
        stack.push_async_callback(ids.close)
        engine = self._engine(database, stack, ids.mint, ids.mint_many)
        return engine.dispatch(self._scope), LocalSecrets(self._settings, database, self._scope)

    async def _remote(self, stack: AsyncExitStack) -> tuple[Dispatch, Any]:
        from noetl.runtime.remote.secrets import RemoteSecrets
        from noetl.runtime.remote.server_api import ServerApi

        api = await stack.enter_async_context(ServerApi(self._reach["url"], self._token()))
        return self._remote_dispatch(stack), RemoteSecrets(api, self._settings.key_directory)

    def _remote_dispatch(self, stack: AsyncExitStack) -> RemoteDispatch:
        from noetl.engine.dispatch.remote import RemoteDispatch

        dispatch = RemoteDispatch(self._reach["url"], self._token(), kinds=known_kinds())
        stack.push_async_callback(dispatch.close)
        return dispatch

    def _token(self) -> Secret | None:
        return None if self._reach["token"] is None else Secret(self._reach["token"])

    def _database(self, stack: AsyncExitStack, pool_max: int) -> Database:
        own = self._settings.database
        database = Database(
            self._reach["database_url"],
            as_roles=self._reach["as_roles"],
            pool_max=pool_max,
            idle_in_transaction_seconds=own.idle_in_transaction_seconds,
        )
        stack.push_async_callback(database.close)
        return database

    def _engine(
        self,
        database: Database,
        stack: AsyncExitStack,
        mint: Callable[[], int],
        mint_many: Callable[[int], list[int]],
    ) -> Engine:
        ledger = PostgresLedger(database, listen=False)
        stack.push_async_callback(ledger.close)
        producer = process_locator(self._settings.runtime, "executor")
        engine = Engine(
            postgres_stores(database, ledger), ledger, open_payloads(self._settings), mint, mint_many, producer,
            kinds=tuple(sorted(known_kinds())),
        )  # fmt: skip
        stack.push_async_callback(engine.close)
        return engine


def _no_ids(*_: int) -> NoReturn:
    raise AssertionError("a heartbeat records nothing, so it needs no ids")


def _plain(value: Any) -> Any:
    """Return settings as plain values, secrets shown and paths absolute: executors have another working directory."""
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, SettingSecret):
        return value.get_secret_value()
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
