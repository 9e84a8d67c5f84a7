"""`noetl dev`: a server and a worker in one process, which register playbooks again whenever their files change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.catalog import playbook_file, registered_sentence
from noetl.cli.server import Serving, open_server, port_option
from noetl.cli.telling import tell
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings

LOOK_SECONDS = 0.5
_SUFFIXES = (".yaml", ".yml")


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH…]")
@port_option
@click.option("--slots", type=click.IntRange(1), help="Commands to work on at a time; default: worker.slots.")
@click.option("--nats", is_flag=True, help="Start a NATS server of our own beside it.")
@click.pass_context
def dev(ctx: click.Context, paths: tuple[Path, ...], port: int | None, slots: int | None, nats: bool) -> None:
    """Serve, work and register playbooks as they change, all in one process on this machine alone.

    PATHs are playbooks, or directories that hold them; without any, the current directory is watched. Files that are no
    playbooks are left alone. A playbook with errors is told about and not registered; the version before stays in use.

    With --nats events are mirrored to a NATS server that is started here, and every `event_store.write_path` can be tried out.
    Its streams are in `nats` in `runtime.home` and stay there. It listens on the port of `event_store.connection.url`, which
    must be one of this machine, or else on any that is free.

    \b
    Examples:
      noetl dev
      noetl dev playbooks/ --port 8090
      noetl dev --nats
      NOETL_EVENT_STORE__WRITE_PATH=stream noetl dev --nats
    """
    from noetl.runtime.service import run_role

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return _dev(stopping, paths or (Path(),), port, slots, nats=nats)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _dev(
    stopping: Stopping, paths: tuple[Path, ...], port: int | None, slots: int | None, *, nats: bool
) -> AsyncIterator[None]:
    async with (
        _settings(nats=nats) as chosen,
        open_server(chosen, stopping, host="127.0.0.1", port=port, slots=slots or chosen.worker.slots) as serving,
    ):
        watch = Watch(paths)
        await _register(serving, watch.changed())
        watching = asyncio.get_running_loop().create_task(_follow(serving, watch), name="noetl-dev-watch")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


@asynccontextmanager
async def _settings(*, nats: bool) -> AsyncIterator[Settings]:
    """Give the settings; they name a NATS server of our own for the time of the block, if one is wanted."""
    from noetl.runtime.config import load_settings
    from noetl.runtime.own_nats import open_own_nats

    if not nats:
        yield load_settings()
        return
    async with open_own_nats(os.environ) as (settings, server):
        tell(f"NATS on {server.url}, its streams in {settings.runtime.home / 'nats'}")
        yield settings


async def _follow(serving: Serving, watch: Watch) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await _register(serving, await asyncio.to_thread(watch.changed))


async def _register(serving: Serving, files: list[Path]) -> None:
    for file in files:
        try:
            read = playbook_file(file)
            answer = await serving.catalog.register(serving.runtime.scope, read.text, file=read.name)
        except NoetlError as problem:
            tell(problem.message)
            continue
        for warning in read.warnings:
            tell(f"warning: {warning}")
        tell(registered_sentence(read.name, answer))


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
