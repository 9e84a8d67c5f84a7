"""What `noetl db status` shows: facts about the database as a plain mapping, and the same as a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any


def embedded_status(home: Path) -> dict[str, Any]:
    """The facts about the embedded server under home; it is not started to find them."""
    from noetl.runtime import migrate
    from noetl.runtime.embedded import EmbeddedServer

    server = EmbeddedServer(home)
    info = server.status()
    facts = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(info).items()}
    revision = _revision(server.url()) if info.running else None
    return {"kind": "embedded", **facts, "schema_revision": revision, "schema_head": migrate.head()}


def external_status(url: str, owner_url: str | None) -> dict[str, Any]:
    """The facts about an external server; raises Unavailable when it does not answer."""
    import psycopg

    from noetl.cli.db import reachable
    from noetl.runtime import migrate

    with reachable(), psycopg.connect(url, connect_timeout=10) as connection:
        info = connection.info
        version = info.parameter_status("server_version")
        facts = {"host": info.host, "port": info.port, "database": info.dbname, "user": info.user}
    revision = _revision(owner_url or url)
    newest = migrate.head()
    return {"kind": "external", "running": True, "version": version, **facts} | {
        "schema_revision": revision,
        "schema_head": newest,
    }


def render(facts: dict[str, Any]) -> str:
    """The facts as a table for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(facts):
        table.add_row(name, Text(value))
    # Rich decides by the real terminal about colours and width, so it only renders here and click prints.
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    revision, head = facts["schema_revision"], facts["schema_head"]
    behind = "" if revision == head else f" (newest is {head}: noetl db migrate)"
    schema = f"{revision or 'none'}{behind}" if facts["running"] else "unknown while stopped"
    if facts["kind"] == "external":
        where = f"{facts['host']}:{facts['port']}"
        return [
            ("database", "external"),
            ("server", f"PostgreSQL {facts['version']} on {where}"),
            ("connected as", f"{facts['user']} to {facts['database']}"),
            ("schema", schema),
        ]
    state = "running" if facts["running"] else "stopped" if facts["initialized"] else "not made yet"
    users = facts["users"]
    lines = [
        ("database", "embedded"),
        ("state", state + (", pinned until noetl db stop" if facts["running"] and facts["pinned"] else "")),
        ("version", f"PostgreSQL {facts['version']}" if facts["version"] else "-"),
        ("data directory", facts["data_dir"]),
        ("stands there because", facts["moved_because"]),
        ("socket", facts["socket_dir"] or "-"),
        ("TCP", f"{facts['host']}:{facts['port']}" if facts["port"] else "-"),
        ("pid", f"{facts['pid']} as {facts['account']}" if facts["pid"] else "-"),
        ("users", "unknown" if users is None else f"{len(users)}" + (f" (pid {_joined(users)})" if users else "")),
        ("log", facts["log_dir"]),
        ("schema", schema),
    ]
    return [(name, text) for name, text in lines if text is not None]


def _revision(url: str) -> str | None:
    import psycopg

    from noetl.cli.db import reachable
    from noetl.runtime import migrate

    with reachable():
        try:
            return migrate.current(url)
        except psycopg.errors.InsufficientPrivilege:
            return "not readable for this role"


def _joined(pids: tuple[int, ...]) -> str:
    return ", ".join(str(pid) for pid in pids)
