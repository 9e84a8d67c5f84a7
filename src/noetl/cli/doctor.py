"""`noetl doctor`: looks whether everything NoETL needs is there, and says what to do about what is not.

Starts nothing that was not running, except Java to ask for its version; writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.runtime.settings import Settings

_SECONDS = 10.0
_PROBE = "noetl-doctor"


@dataclass(frozen=True)
class Finding:
    """What was found of one thing: fine or not, what it is, and what to do."""

    name: str
    ok: bool
    found: str
    todo: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check Java, Spark, PostgreSQL, NATS and the object stores; exit 1 if something is missing.

    \b
    Examples:
      noetl doctor
      noetl doctor --json
    """
    from noetl.cli.tables import rendered
    from noetl.runtime.config import load_settings

    findings = asyncio.run(_examine(load_settings()))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in findings], indent=2, ensure_ascii=False))
    else:
        rows = [(one.name, "ok" if one.ok else "MISSING", one.found, one.todo) for one in findings]
        click.echo(rendered(("", "", "found", "what to do"), rows), nl=False)
    ctx.exit(0 if all(one.ok for one in findings) else 1)


async def _examine(settings: Settings) -> list[Finding]:
    checks: dict[str, Callable[[Settings], Awaitable[Finding]]] = {
        "Java": _java,
        "Spark": _spark,
        "PostgreSQL": _postgres,
        "NATS": _nats,
        "payloads": _payloads,
        "lake": _lake,
    }
    return list(await asyncio.gather(*(_examined(name, check, settings) for name, check in checks.items())))


async def _examined(name: str, check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        async with asyncio.timeout(_SECONDS):
            return await check(settings)
    except TimeoutError:
        return Finding(
            name, False, f"no answer within {_SECONDS:g} s", "see whether it runs and can be reached from here"
        )
    except NoetlError as error:
        return Finding(
            name, False, error.message, error.hint or "see that it runs and that the settings name it rightly"
        )


async def _java(settings: Settings) -> Finding:
    from noetl.spark.java import find_java

    if settings.spark.master.startswith("sc://"):
        return Finding("Java", True, "not needed: Spark runs on a Connect server")
    java = await asyncio.to_thread(find_java, settings.spark.cache)
    return Finding("Java", True, f"Java {java.version} in {java.home} (from {java.reason})")


async def _spark(settings: Settings) -> Finding:
    from importlib.metadata import PackageNotFoundError, version
    from urllib.parse import urlsplit

    from noetl.spark.options import kind_of

    try:
        release = version("pyspark")
    except PackageNotFoundError:
        return Finding("Spark", False, "pyspark is not installed", "pip install pyspark")
    master, kind = settings.spark.master, kind_of(settings.spark.master)
    parts = urlsplit(master)
    if kind in ("standalone", "connect") and parts.hostname:
        port = parts.port or (7077 if kind == "standalone" else 15002)
        if not await _answers(parts.hostname, port):
            todo = f"start it, or correct spark.master, which is {master}"
            return Finding("Spark", False, f"nothing answers at {parts.hostname}:{port}", todo)
    return Finding("Spark", True, f"Spark {release} on {master}")


async def _postgres(settings: Settings) -> Finding:
    from noetl.cli.db_status import embedded_status, external_status

    database = settings.database
    if database.url is None:
        facts = await asyncio.to_thread(embedded_status, settings.runtime.home)
        state = "running" if facts["running"] else "starts with the first command that needs it"
        return Finding("PostgreSQL", True, f"embedded, {state}")
    owner = database.owner_url.get_secret_value() if database.owner_url else None
    facts = await asyncio.to_thread(external_status, database.url.get_secret_value(), owner)
    found = f"PostgreSQL {facts['version']} on {facts['host']}:{facts['port']}"
    if facts["schema_revision"] != facts["schema_head"]:
        behind = f"{found}, schema {facts['schema_revision'] or 'missing'}"
        return Finding("PostgreSQL", False, behind, "noetl db migrate")
    return Finding("PostgreSQL", True, found)


async def _nats(settings: Settings) -> Finding:
    from urllib.parse import urlsplit

    url = settings.event_store.connection.url
    if url is None or not url.get_secret_value().startswith(("nats://", "tls://")):
        return Finding("NATS", True, "not needed: PostgreSQL tells of new events")
    parts = urlsplit(url.get_secret_value())
    host, port = parts.hostname or "", parts.port or 4222
    if await _answers(host, port):
        return Finding("NATS", True, f"answers at {host}:{port}")
    return Finding(
        "NATS", False, f"nothing answers at {host}:{port}", "start it, or correct event_store.connection.url"
    )


async def _answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


async def _payloads(settings: Settings) -> Finding:
    from noetl.payloads.chain import durable_of
    from noetl.runtime.wiring import open_payloads

    store = settings.payload_store
    if store.backend == "memory":
        return Finding("payloads", True, "in memory, gone with the process")
    if store.backend == "local":
        return _directory("payloads", settings.payload_directory, "payload_store.connection.path")
    opened: Any = durable_of(open_payloads(settings))
    await opened.bucket.find(_PROBE)
    return Finding("payloads", True, f"{store.backend} bucket {store.connection.bucket}")


async def _lake(settings: Settings) -> Finding:
    from noetl.runtime.spark_settings import spark_options
    from noetl.spark.lake import Lake

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
        return Finding("lake", False, f"{told.lake_root} cannot be read: {said}", "check lake.location and its keys")
    return Finding("lake", True, f"{told.lake_root}, {'read by Spark itself' if told.lake_native else 'read by NoETL'}")


def _directory(name: str, path: Path, setting: str) -> Finding:
    above = next(one for one in (path, *path.absolute().parents) if one.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return Finding(name, True, f"directory {path}")
    return Finding(
        name, False, f"{above} cannot be written", f"give this user the right to write there, or set {setting}"
    )
