"""Whether everything NoETL needs is there: settings go in, findings with what to do come out.

Starts nothing that was not running, except Java to ask for its version; writes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetl.errors import NoetlError
from noetl.runtime.settings.declaration import Settings

_SECONDS = 10.0
_PROBE = "noetl-doctor"


@dataclass(frozen=True)
class Finding:
    """What was found of one thing: fine or not, what it is, and what to do."""

    name: str
    ok: bool
    found: str
    todo: str = ""


def _fine(name: str, found: str) -> Finding:
    return Finding(name, ok=True, found=found)


def _missing(name: str, found: str, todo: str) -> Finding:
    return Finding(name, ok=False, found=found, todo=todo)


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything that the settings name, one thing beside the other."""
    checks: dict[str, Callable[[Settings], Awaitable[Finding]]] = {
        "Java": _java,
        "Spark": _spark,
        "PostgreSQL": _postgres,
        "NATS": _nats,
        "payloads": _payloads,
        "lake": _lake,
        "tasks": _tasks,
    }
    return list(await asyncio.gather(*(_examined(name, check, settings) for name, check in checks.items())))


async def _examined(name: str, check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        async with asyncio.timeout(_SECONDS):
            return await check(settings)
    except TimeoutError:
        return _missing(name, f"no answer within {_SECONDS:g} s", "see whether it runs and can be reached from here")
    except NoetlError as error:
        return _missing(name, error.message, error.hint or "see that it runs and that the settings name it rightly")


async def _java(settings: Settings) -> Finding:
    from noetl.spark.session.java import find_java

    if settings.spark.master.startswith("sc://"):
        return _fine("Java", "not needed: Spark runs on a Connect server")
    java = await asyncio.to_thread(find_java, settings.spark.cache)
    return _fine("Java", f"Java {java.version} in {java.home} (from {java.reason})")


async def _spark(settings: Settings) -> Finding:
    from importlib.metadata import PackageNotFoundError, version
    from urllib.parse import urlsplit

    from noetl.spark.session.options import kind_of

    try:
        release = version("pyspark")
    except PackageNotFoundError:
        return _missing("Spark", "pyspark is not installed", "pip install pyspark")
    master, kind = settings.spark.master, kind_of(settings.spark.master)
    parts = urlsplit(master)
    if kind in ("standalone", "connect") and parts.hostname:
        port = parts.port or (7077 if kind == "standalone" else 15002)
        if not await _answers(parts.hostname, port):
            todo = f"start it, or correct spark.master, which is {master}"
            return _missing("Spark", f"nothing answers at {parts.hostname}:{port}", todo)
    return _fine("Spark", f"Spark {release} on {master}")


async def _postgres(settings: Settings) -> Finding:
    from noetl.runtime.postgres.status import embedded_status, external_status

    database = settings.database
    if database.url is None:
        facts = await asyncio.to_thread(embedded_status, settings.runtime.home)
        state = "running" if facts["running"] else "starts with the first command that needs it"
        return _fine("PostgreSQL", f"embedded, {state}")
    owner = database.owner_url.get_secret_value() if database.owner_url else None
    facts = await asyncio.to_thread(external_status, database.url.get_secret_value(), owner)
    found = f"PostgreSQL {facts['version']} on {facts['host']}:{facts['port']}"
    if facts["schema_revision"] != facts["schema_head"]:
        behind = f"{found}, schema {facts['schema_revision'] or 'missing'}"
        return _missing("PostgreSQL", behind, "noetl db migrate")
    return _fine("PostgreSQL", found)


async def _nats(settings: Settings) -> Finding:
    from urllib.parse import urlsplit

    url = settings.event_store.connection.url
    if url is None or not url.get_secret_value().startswith(("nats://", "tls://")):
        return _fine("NATS", "not needed: PostgreSQL tells of new events")
    parts = urlsplit(url.get_secret_value())
    host, port = parts.hostname or "", parts.port or 4222
    if await _answers(host, port):
        return _fine("NATS", f"answers at {host}:{port}")
    return _missing("NATS", f"nothing answers at {host}:{port}", "start it, or correct event_store.connection.url")


async def _tasks(settings: Settings) -> Finding:
    from noetl.engine.confinement.groups import is_possible
    from noetl.engine.confinement.policy import decided

    own = settings.worker
    # What a worker does; a run or `noetl dev` of root has its own user's code, and leaves it its user id.
    policy = await asyncio.to_thread(decided, own.isolation, shared=True, user=own.isolation_user)
    memory = "bounded by a control group" if is_possible() else "watched by their supervisor"
    found = f"{policy.sentence}; memory is {memory}"
    if policy.weak_because is None:
        return _fine("tasks", found)
    todo = "allow unprivileged user namespaces, or start the worker as root; else give it an account of its own"
    return Finding("tasks", ok=True, found=found, todo=todo)


async def _answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


async def _payloads(settings: Settings) -> Finding:
    from noetl.kernel.payloads.tiers import durable_of
    from noetl.runtime.wiring import open_payloads

    store = settings.payload_store
    if store.backend == "memory":
        return _fine("payloads", "in memory, gone with the process")
    if store.backend == "local":
        return _directory("payloads", settings.payload_directory, "payload_store.connection.path")
    opened: Any = durable_of(open_payloads(settings))
    await opened.bucket.find(_PROBE)
    return _fine("payloads", f"{store.backend} bucket {store.connection.bucket}")


async def _lake(settings: Settings) -> Finding:
    from noetl.runtime.settings.spark import spark_options
    from noetl.spark.lake.storage import Lake

    told = spark_options(settings.spark, settings.lake, settings.runtime.home)
    lake = Lake(root=told.lake_root, options=told.lake_options, native=told.lake_native)
    if lake.directory is not None:
        return _directory("lake", lake.directory, "lake.location")
    import obstore

    try:
        await obstore.head_async(lake.store(), _PROBE)
    except FileNotFoundError:
        pass  # the store answered: there is no such object, and there need not be
    except Exception as error:
        said = str(error).strip().splitlines()[0][:200]
        return _missing("lake", f"{told.lake_root} cannot be read: {said}", "check lake.location and its keys")
    return _fine("lake", f"{told.lake_root}, {'read by Spark itself' if told.lake_native else 'read by NoETL'}")


def _directory(name: str, path: Path, setting: str) -> Finding:
    above = next(one for one in (path, *path.absolute().parents) if one.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return _fine(name, f"directory {path}")
    return _missing(name, f"{above} cannot be written", f"give this user the right to write there, or set {setting}")
