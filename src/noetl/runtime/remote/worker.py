"""A worker for a server elsewhere: no database, only the server's API and the payload store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from noetl.engine.dispatch.remote import RemoteDispatch
from noetl.engine.tools.registry import known_kinds, load_tools
from noetl.engine.tools.resources import WorkerResources
from noetl.engine.worker.services import Services
from noetl.engine.worker.worker import Worker
from noetl.errors import NoetlError
from noetl.kernel.payloads.consumers import for_consumer
from noetl.model.stream import Scope
from noetl.pipelines.tasks.remote import RemoteTasks
from noetl.runtime.assembly.pipelines import task_worker
from noetl.runtime.confinement import hide_secrets
from noetl.runtime.locality import remote_name, wish_of
from noetl.runtime.remote.awaited_server import Waiting
from noetl.runtime.remote.secrets import RemoteSecrets
from noetl.runtime.remote.server_api import ServerApi
from noetl.runtime.scratch import kept_scratch
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.spark.frames import frame_pool
from noetl.runtime.wiring import open_payloads
from noetl.services.credentials.secret import Secret


@asynccontextmanager
async def open_remote_worker(
    settings: Settings,
    url: str,
    token: Secret | None,
    waiting: Waiting,
    *,
    slots: int,
    watch: Callable[[Worker], None] = lambda worker: None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker for a server for the time of the block, and finish at its end what it has begun.

    A server that does not answer yet is waited for before the block begins; one that goes away later, too, without an end.
    The task that is given ends only when something in the worker itself is broken. `watch` is shown the worker.
    """
    scope = Scope(settings.runtime.tenant_id, settings.runtime.organization_id)
    name = remote_name(settings.runtime)
    dispatch = RemoteDispatch(url, token, kinds=known_kinds())
    await asyncio.to_thread(hide_secrets, settings)
    resources = WorkerResources()
    spark = frame_pool(settings, scope, url=url, token=token)
    async with ServerApi(url, token) as api:
        services = Services(
            scope=scope,
            tools=load_tools({"python": {"cache": settings.cache_directory / "python"}, "spark": {"queries": spark}}),
            lanes=spark,
            secrets=RemoteSecrets(api, settings.key_directory),
            store=for_consumer(open_payloads(settings), "worker"),
            resources=resources,
            find=dispatch.reference,
            inline_bytes=settings.payload_store.threshold_bytes,
            frame_ctx_bytes=settings.runtime.scheduler.max_frame_ctx_bytes,
        )
        most = settings.runtime.scheduler.max_inflight_frames_per_worker
        worker = Worker(name, dispatch, services, slots=slots, wish=wish_of(settings), most_loops=most)
        watch(worker)
        try:
            async with (
                _registered(api, waiting, settings, name, slots),
                _tasks(settings, scope, url, token, name, services),
                kept_scratch(resources, settings, dispatch),
            ):
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


@asynccontextmanager
async def _registered(
    api: ServerApi, waiting: Waiting, settings: Settings, name: str, slots: int
) -> AsyncIterator[None]:
    """Show the worker among the server's workers; a server that refuses it at the start is told about at once."""
    own = settings.worker
    labels = {"node": settings.runtime.node_id}
    body = {"worker_id": name, "pool": own.pool, "slots": slots, "labels": labels}

    async def here() -> None:
        await api.ask("POST", "/api/worker/pool/register", body)

    async def beat() -> None:
        away = False
        while True:
            await asyncio.sleep(own.register_seconds)
            try:
                await here()
                if away:
                    waiting.tell("the server answers again")
                away = False
            except NoetlError as problem:
                if not away:
                    waiting.tell(f"going on asking: {problem.message}")
                away = True

    await waiting.until_answered(here)
    beating = asyncio.get_running_loop().create_task(beat(), name="noetl-worker-row")
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        with suppress(NoetlError):
            await api.ask("POST", "/api/worker/pool/deregister", {"worker_id": name})
