"""What tasks of this process must not find: settings go in, the policy that confines users' code has it from then on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from noetl.execute.confinement.policy import Policy, hide, set_policy
from noetl.runtime.pgplace import find_place, load_state
from noetl.runtime.settings import Settings

_OURS: Final = ("keys", "nats", "payloads", "cache", "run", "published", "lake", "spark", "postgres")
_OF_DATABASE: Final = ("postgres.pgpass", "postgres.password", "postgres.json", "postgres.location")


def confine_tasks(settings: Settings, tell: Callable[[str], None], *, shared: bool) -> Policy:
    """Set how this process confines tasks, and say so where it hardly can; `shared` work is that of other people."""
    own = settings.worker
    memory = None if own.task_memory_mb is None else own.task_memory_mb * 1024 * 1024
    policy = set_policy(own.isolation, shared=shared, user=own.isolation_user, memory_bytes=memory)
    if policy.weak_because is not None:
        tell(policy.sentence)
    return policy


def hide_secrets(settings: Settings) -> None:
    """Hide the home, the keys and the way to the database from every task that is started from now on."""
    home = settings.runtime.home.resolve()
    hidden = [settings.key_directory, settings.payload_directory]
    # One that we made is ours as a whole; one that was there before may be somebody's project.
    hidden += [home] if _is_ours(home) else [home / name for name in (*_OURS, *_OF_DATABASE)]
    if settings.event_store.connection.credentials_file is not None:
        hidden.append(settings.event_store.connection.credentials_file)
    if settings.database.url is None:
        place = find_place(home)
        hidden += [place.base] if place.base != home else []
        socket = load_state(place).socket_dir
        hidden += [Path(socket)] if socket else []
    hide(hidden, [settings.cache_directory / "python"])


def _is_ours(home: Path) -> bool:
    try:
        return (home / ".gitignore").read_text(encoding="utf-8") == "*\n"
    except (OSError, UnicodeDecodeError):
        return False
