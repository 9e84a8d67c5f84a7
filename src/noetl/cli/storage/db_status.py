"""What `noetl db status` shows: facts about the database go in, a table comes out."""

from __future__ import annotations

from typing import Any

from noetl.cli.terminal.tables import rendered


def render(facts: dict[str, Any]) -> str:
    """The facts as a table for a terminal."""
    return rendered(("", ""), _lines(facts), whole=True, head=False)


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


def _joined(pids: tuple[int, ...]) -> str:
    return ", ".join(str(pid) for pid in pids)
