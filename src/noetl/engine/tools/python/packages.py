"""Virtual environments for code that asks for packages: a list of requirements goes in, an interpreter that has them comes out.

One environment per list and interpreter, kept in a cache directory; a file lock lets processes share it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

from noetl.engine.tools.port import Resources
from noetl.engine.tools.programs.process import run_process
from noetl.errors import InputError, Unavailable

_LOCK_POLL_SECONDS = 0.1
_SHOWN_OF_LOG = 1_500
_READY = "ready"
_INSTALL = ("install", "--no-input", "--disable-pip-version-check", "--")


def interpreter_of(venv: Path) -> str:
    """Return the interpreter of a virtual environment that is there already."""
    found = venv / "bin" / "python"
    if not found.exists():
        raise InputError(f"deps.venv_path: {venv} is no virtual environment, {found} is not there")
    return str(found)


async def environment_with(packages: tuple[str, ...], cache: Path, resources: Resources) -> str:
    """Return the interpreter of an environment with these packages, made if need be."""
    if any(each.startswith("-") for each in packages):
        raise InputError("deps.packages names packages and paths, not options of pip")
    digest = _digest(packages)

    async def make() -> str:
        return await _made(packages, cache / digest)

    interpreter: str = await resources.get(("python", "environment", str(cache), digest), make)
    return interpreter


def _digest(packages: tuple[str, ...]) -> str:
    parts = [sys.implementation.cache_tag, os.path.realpath(sys.executable)]
    for each in sorted(set(packages)):
        path = Path(each)
        # What lies on this machine can change under the same name.
        parts.append(f"{path.resolve()}@{path.stat().st_mtime_ns}" if path.exists() else each)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


async def _made(packages: tuple[str, ...], place: Path) -> str:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    interpreter = place / "bin" / "python"
    with place.with_suffix(".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_SECONDS)
        if not (place / _READY).exists():
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            # The worker's own pip is used where there is one: an environment with a pip of its own takes far longer.
            borrowed = importlib.util.find_spec("pip") is not None
            venv = [sys.executable, "-I", "-m", "venv", *(["--without-pip"] if borrowed else []), str(place)]
            await _step(venv, "make the environment")
            pip = [sys.executable, "-I", "-m", "pip", "--python", str(interpreter)]
            pip = pip if borrowed else [str(interpreter), "-I", "-m", "pip"]
            await _step([*pip, *_INSTALL, *packages], f"install {', '.join(packages)}")
            (place / _READY).touch()
    return str(interpreter)


async def _step(command: list[str], what: str) -> None:
    # The environment is that of all tasks with these packages, so the account makes it and not the user of one task.
    ended = await run_process(command, as_account=True)
    if ended.exit_code != 0:
        log = (ended.stderr.text.strip() or ended.stdout.text.strip())[-_SHOWN_OF_LOG:]
        raise Unavailable(f"deps.packages: cannot {what}: {log}")
