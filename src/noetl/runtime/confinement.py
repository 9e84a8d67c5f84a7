"""What tasks of this process must not find: settings go in, the policy that confines users' code has it from then on."""

from __future__ import annotations

import os
import site
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import noetl
from noetl.engine.confinement.policy import Policy, hide, set_policy
from noetl.runtime.config import settings_file
from noetl.runtime.payloads.tiers import broker_socket
from noetl.runtime.postgres.location import find_place, load_state
from noetl.runtime.settings.declaration import Settings

_OURS: Final = (
    "keys",
    "nats",
    "payloads",
    "cache",
    "run",
    "published",
    "lake",
    "spark",
    "heads",
    "proofs",
    "views",
    "query",
    "openlineage.jsonl",
    "node-broker.sock",
    "postgres",
)
_OF_DATABASE: Final = ("pgpass", "password", "json", "location", "lock", "users", "alive", "start.log", "new")


def confine_tasks(settings: Settings, tell: Callable[[str], None], *, shared: bool) -> Policy:
    """Set how this process confines tasks, and say so where it hardly can; `shared` work is that of other people."""
    own = settings.worker
    memory = None if own.task_memory_mb is None else own.task_memory_mb * 1024 * 1024
    policy = set_policy(own.isolation, shared=shared, user=own.isolation_user, memory_bytes=memory)
    if policy.weak_because is not None:
        tell(policy.sentence)
    return policy


def hide_secrets(settings: Settings) -> None:
    """Hide all that is NoETL's own, and the way to the database, from every task that is started from now on."""
    kept = settings.cache_directory / "python"
    hide(
        [*_at_home(settings), *_elsewhere(settings)],
        [kept],
        [path for path in _programs() if not _is_wide(path, settings)],
    )


def _at_home(settings: Settings) -> list[Path]:
    home = settings.runtime.home.resolve()
    # One that we made is ours as a whole; one that was there before may be somebody's project.
    hidden = (
        [home] if _is_ours(home) else [home / name for name in (*_OURS, *(f"postgres.{end}" for end in _OF_DATABASE))]
    )
    if settings.database.url is None:
        place = find_place(home)
        hidden += [place.base] if place.base != home else []
        socket = load_state(place).socket_dir
        hidden += [Path(socket)] if socket else []
    return hidden


def _elsewhere(settings: Settings) -> list[Path]:
    """Return what the settings may put outside the home: whoever may write heads, lakes or Spark's state changes what is proven."""
    own = settings.payload_store
    secret = [settings.key_directory, settings.payload_directory, settings.head_directory, broker_socket(settings)]
    files = [settings.event_store.connection.credentials_file, settings.openlineage.path]
    places = [own.cache.tier_2_disk_path, own.cache.tier_15_directory]
    # A relative one is looked for from the working directory, as their users do.
    places += [
        Path(address.removeprefix("file://").removeprefix("file:"))
        for address in (settings.lake.location, settings.views.checkpoint, settings.event_lake.checkpoint)
        if address is not None and ("://" not in address or address.startswith("file:"))
    ]
    return [
        *secret,
        *(path for path in files if path),
        *(path for path in places if path and not _is_wide(path, settings)),
    ]


def _programs() -> list[Path]:
    """Return what NoETL's next start is made of: its code, the interpreter's, and the file of settings."""
    code = [Path(noetl.__file__).parent, Path(os.__file__).parent, *map(Path, site.getsitepackages())]
    # The system's own place holds far more than an interpreter, and is root's.
    whole = [Path(each) for each in (sys.prefix, sys.base_prefix) if each not in ("/", "/usr")]
    file = settings_file()
    return [*whole, *code, *([] if file is None else [file])]


def _is_wide(place: Path, settings: Settings) -> bool:
    """Whether tasks work below a directory: hidden, it would take their own files away as well."""
    needed = (settings.runtime.home.resolve(), Path.cwd(), Path(tempfile.gettempdir()).resolve())
    return any(below.is_relative_to(place.resolve()) for below in needed)


def _is_ours(home: Path) -> bool:
    try:
        return (home / ".gitignore").read_text(encoding="utf-8") == "*\n"
    except (OSError, UnicodeDecodeError):
        return False
