"""The role `dev`: a server and a worker in one process, which register playbooks again whenever their files change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from noetl.engine.catalog.playbooks import Registered
from noetl.errors import NoetlError
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.runtime.commands.catalog import read_playbook
from noetl.runtime.config import load_settings
from noetl.runtime.confinement import confine_tasks
from noetl.runtime.nats.embedded import open_own_nats
from noetl.runtime.roles.server import Serving, open_server
from noetl.runtime.service import Stopping, run_role
from noetl.runtime.settings.declaration import Settings

LOOK_SECONDS = 0.5
_SUFFIXES = (".yaml", ".yml")

Told = Callable[[str], None]
Shown = Callable[[CheckedPlaybook, Registered], None]
"""Is told what came of each registration."""


def run_dev(
    tell: Told, shown: Shown, paths: tuple[Path, ...], *, port: int | None, slots: int | None, nats: bool
) -> int:
    """Serve, work and register playbooks of files and directories until a signal ends the process."""

    @asynccontextmanager
    async def start(stopping: Stopping) -> AsyncIterator[None]:
        async with (
            _settings(tell, nats=nats) as chosen,
            open_server(
                chosen, stopping, tell, host="127.0.0.1", port=port, slots=slots or chosen.worker.slots
            ) as serving,
            _registering(serving, Watch(paths), tell, shown),
        ):
            yield

    return run_role(start, tell)


@asynccontextmanager
async def _settings(tell: Told, *, nats: bool) -> AsyncIterator[Settings]:
    """Give the settings; they name a NATS server of our own for the time of the block, if one is wanted."""
    if not nats:
        settings = load_settings()
        confine_tasks(settings, tell, shared=False)
        yield settings
        return
    async with open_own_nats(os.environ) as (settings, server):
        confine_tasks(settings, tell, shared=False)
        tell(f"NATS on {server.url}, its streams in {settings.runtime.home / 'nats'}")
        yield settings


@asynccontextmanager
async def _registering(serving: Serving, watch: Watch, tell: Told, shown: Shown) -> AsyncIterator[None]:
    """Register what the watch finds now, and what changes while the block runs."""

    async def register(files: list[Path]) -> None:
        for file in files:
            try:
                checked = read_playbook(file)
                answer = await serving.catalog.register_checked(serving.runtime.scope, checked)
            except NoetlError as problem:
                tell(problem.message)
                continue
            shown(checked, answer)

    async def follow() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await register(await asyncio.to_thread(watch.changed))

    await register(watch.changed())
    following = asyncio.get_running_loop().create_task(follow(), name="noetl-dev-watch")
    try:
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class Watch:
    """Playbooks in files and directories, by their times and sizes."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._seen: dict[Path, tuple[int, int]] = {}

    def changed(self) -> list[Path]:
        """Return the playbooks that are new or other than at the last look."""
        found: dict[Path, tuple[int, int]] = {}
        for path in self._paths:
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                try:
                    stat = file.stat()
                except OSError:
                    continue  # it was taken away between the two looks
                if path == file or file.suffix in _SUFFIXES:
                    found[file] = (stat.st_mtime_ns, stat.st_size)
        changed = [file for file, state in found.items() if self._seen.get(file) != state]
        self._seen = found
        return [file for file in changed if file in self._paths or _is_playbook(file)]


def _is_playbook(file: Path) -> bool:
    """Tell whether a file of a directory claims to be a playbook; other YAML files are none of our business."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.startswith("apiVersion:") and "noetl.io/" in line for line in lines)
