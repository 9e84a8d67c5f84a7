"""Facts about the database that the settings name: a place goes in, a plain mapping comes out. Nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg

from noetl.errors import InputError, Unavailable
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer


def embedded_status(home: Path) -> dict[str, Any]:
    """The facts about the embedded server under home; it is not started to find them."""
    server = EmbeddedServer(home)
    info = server.status()
    facts = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(info).items()}
    revision = _revision(server.url()) if info.running else None
    return {"kind": "embedded", **facts, "schema_revision": revision, "schema_head": migrations.head()}


def external_status(url: str, owner_url: str | None) -> dict[str, Any]:
    """The facts about an external server; raises Unavailable when it does not answer."""
    with reachable(), psycopg.connect(url, connect_timeout=10) as connection:
        info = connection.info
        version = info.parameter_status("server_version")
        facts = {"host": info.host, "port": info.port, "database": info.dbname, "user": info.user}
    revision = _revision(owner_url or url)
    newest = migrations.head()
    return {"kind": "external", "running": True, "version": version, **facts} | {
        "schema_revision": revision,
        "schema_head": newest,
    }


def _revision(url: str) -> str | None:
    with reachable():
        try:
            return migrations.current(url)
        except psycopg.errors.InsufficientPrivilege:
            return "not readable for this role"


@contextmanager
def reachable() -> Iterator[None]:
    """Turn the driver's errors into NoETL's."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise Unavailable(f"the database does not answer: {_sentence(error)}") from error
    except psycopg.Error as error:
        raise InputError(f"the database refused: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())
