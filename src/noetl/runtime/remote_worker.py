"""A worker for a server elsewhere: no database, only the server's API and the payload store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import aiohttp

from noetl.credentials.credential_types import shown_fields
from noetl.credentials.redact import Redactor
from noetl.credentials.secret import Secret, guarded, secrets_in
from noetl.dispatch.grants import CommandGrant
from noetl.dispatch.remote import RemoteDispatch
from noetl.dispatch.tasks.remote import RemoteTasks
from noetl.errors import Denied, NoetlError, NotFound, Unavailable
from noetl.execute.resources import WorkerResources
from noetl.execute.services import Services
from noetl.execute.tools.port import Credential
from noetl.execute.tools.registry import known_kinds, load_tools
from noetl.execute.worker import Worker
from noetl.model.stream import Scope
from noetl.payloads.consumers import for_consumer
from noetl.playbook.model import Playbook
from noetl.runtime.frames_on_spark import frame_pool
from noetl.runtime.locality import remote_name, wish_of
from noetl.runtime.pipelines import task_worker
from noetl.runtime.settings import Settings
from noetl.runtime.wiring import open_payloads

_log = logging.getLogger(__name__)

_SECONDS = 30.0


@asynccontextmanager
async def open_remote_worker(
    settings: Settings,
    url: str,
    token: Secret | None,
    *,
    slots: int,
    watch: Callable[[Worker], None] = lambda worker: None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker for a server for the time of the block, and finish at its end what it has begun.

    The task that is given ends only when something in the worker itself is broken. `watch` is shown the worker.
    """
    scope = Scope(settings.runtime.tenant_id, settings.runtime.organization_id)
    name = remote_name(settings.runtime)
    dispatch = RemoteDispatch(url, token, kinds=known_kinds())
    resources = WorkerResources()
    spark = frame_pool(settings, scope, url=url, token=token)
    async with ServerApi(url, token) as api:
        services = Services(
            scope=scope,
            tools=load_tools({"python": {"cache": settings.cache_directory / "python"}, "spark": {"queries": spark}}),
            lanes=spark,
            secrets=RemoteSecrets(api),
            store=for_consumer(open_payloads(settings), "worker"),
            resources=resources,
        )
        worker = Worker(name, dispatch, services, slots=slots, wish=wish_of(settings))
        watch(worker)
        try:
            async with _registered(api, settings, name, slots), _tasks(settings, scope, url, token, name, services):
                running = asyncio.get_running_loop().create_task(worker.run(), name="noetl-worker")
                try:
                    yield running
                    await worker.stop()
                    await running
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
        finally:
            await resources.aclose()
            await spark.close()
            await dispatch.close()


@asynccontextmanager
async def _tasks(
    settings: Settings, scope: Scope, url: str, token: Secret | None, name: str, services: Services
) -> AsyncIterator[None]:
    """Work on tasks of dataset jobs besides; those of the dispatcher may run playbooks, which takes the database."""
    own = settings.worker
    runtimes = tuple(one for one in own.runtimes if one != "dispatcher")
    if not runtimes:
        yield
        return
    tasks = RemoteTasks(url, token)
    try:
        async with task_worker(
            f"{name}/tasks", settings, scope, tasks, services.store, services.secrets.credentials, {},
            slots=own.task_slots, runtimes=runtimes,
        ):  # fmt: skip
            yield
    finally:
        await tasks.close()


class RemoteSecrets:
    """The secrets of the token's organization, asked of the server; what was handed out is known to the redactor."""

    def __init__(self, api: ServerApi) -> None:
        self._api = api
        self.redaction = Redactor()

    @property
    def credentials(self) -> RemoteSecrets:
        """Itself: it knows credentials by name."""
        return self

    async def credential(self, name: str) -> Credential:
        """Return a credential by name."""
        found = await self._api.ask("GET", f"/api/credentials/{quote(name, safe='')}?include_data=true")
        credential = Credential(found["name"], found["type"], found["data"])
        self.redaction.add(*secrets_in(guarded(credential.data, shown_fields(credential.type))))
        return credential

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the server resolve a playbook's keychain; the values are redacted from everything that leaves here."""
        if not playbook.keychain:
            return {}
        lease = {
            "execution_id": str(grant.execution_id),
            "command_id": grant.command_id,
            "attempt": grant.attempt,
            "token": grant.token,
        }
        found = await self._api.ask("POST", "/api/commands/keychain", {"lease": lease})
        self.redaction.add(*found["secrets"])
        keychain: Mapping[str, Any] = found["keychain"]
        return keychain


class ServerApi:
    """Plain calls of a server's API."""

    def __init__(self, url: str, token: Secret | None) -> None:
        self._url = url.rstrip("/")
        headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=_SECONDS))

    async def __aenter__(self) -> ServerApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer."""
        try:
            async with self._session.request(method, self._url + path, json=body) as response:
                answer = None if response.status == 204 else await response.json(content_type=None)
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            raise Unavailable(
                f"the server at {self._url} does not answer: {problem or type(problem).__name__}",
                hint="is the address right, and does `noetl server` run there?",
            ) from None
        if status < 400:
            return answer
        words = str((answer or {}).get("detail") or f"{method} {path} was answered with status {status}")
        hint = (answer or {}).get("hint")
        if status in (401, 403):
            raise Denied(words, hint=hint)
        raise NotFound(words, hint=hint) if status == 404 else Unavailable(words, hint=hint)


@asynccontextmanager
async def _registered(api: ServerApi, settings: Settings, name: str, slots: int) -> AsyncIterator[None]:
    """Show the worker among the server's workers; a server that refuses it at the start is told about at once."""
    own = settings.worker
    labels = {"node": settings.runtime.node_id}
    body = {"worker_id": name, "pool": own.pool, "slots": slots, "labels": labels}

    async def beat() -> None:
        while True:
            await asyncio.sleep(own.register_seconds)
            try:
                await api.ask("POST", "/api/worker/pool/register", body)
            except NoetlError as problem:
                _log.warning("the worker could not say that it is there: %s", problem.message)

    await api.ask("POST", "/api/worker/pool/register", body)
    beating = asyncio.get_running_loop().create_task(beat(), name="noetl-worker-row")
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        with suppress(NoetlError):
            await api.ask("POST", "/api/worker/pool/deregister", {"worker_id": name})
