"""Which write path a process takes: settings go in, the way it gives to the database comes out, or what it lacks to go it.

Roles that serve apply what is set, given or not, so that taking a line back turns the way back. A command that comes and
goes applies only what was given: it must not change the way of everybody by a default.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from noetl.errors import ConfigError, Unavailable
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import mirrors

Way = Literal["ledger", "shadow", "stream"]

_SET_THEM: Final = (
    "set event_store.distribution_backend to nats-jetstream and event_store.connection.url to the NATS server of this "
    "database, or start a server that has both with event_store.write_path ledger, which turns the way back"
)


def applied_way(settings: Settings, *, serves: bool) -> Way | None:
    """Return the way that a process gives to the database; None where it goes the one that it finds."""
    store = settings.event_store
    return store.write_path if serves or "write_path" in store.model_fields_set else None


def refusal_of(settings: Settings) -> Callable[[], Unavailable] | None:
    """Return what to say to a write through the stream in a process that knows none; None where it knows one."""
    return None if mirrors(settings) else partial(Unavailable, lacking(settings), hint=_SET_THEM)


def check_followed(settings: Settings) -> None:
    """Refuse to go through the stream where the settings name none, or ask for what nobody asserts."""
    connection = settings.event_store.connection
    if not mirrors(settings):
        raise ConfigError(lacking(settings), hint=_SET_THEM)
    if connection.require_fsync and not connection.sync_interval_always:
        raise ConfigError(
            "this database is in write path stream, and event_store.connection.require_fsync is set while nobody says that "
            "NATS syncs a write before it acknowledges it",
            hint="run NATS with `sync_interval: always` and set sync_interval_always: true, or do not require it",
        )


def lacking(settings: Settings) -> str:
    """Say that the database goes through the stream, and which settings keep this process from it."""
    store = settings.event_store
    url = "not set" if store.connection.url is None else "of no use then"
    return (
        "this database is in write path stream, and this process knows no NATS server: event_store.distribution_backend is "
        f"{store.distribution_backend}, and event_store.connection.url is {url}"
    )


LOSS_WINDOW = (
    "write path `stream`: an event counts as durable when NATS acknowledges it, which by default is before it is on disk; "
    "a power failure of the NATS servers can lose up to two minutes of acknowledged facts"
)
SYNCED = (
    "write path `stream`: an event counts as durable when NATS acknowledges it, synced to disk as the operator says"
)


def loss_window(settings: Settings, way: str) -> str | None:
    """Say what may be lost in a write path, where anything may."""
    if way != "stream":
        return None
    return SYNCED if settings.event_store.connection.sync_interval_always else LOSS_WINDOW
