"""A confined process, seen from the worker: what to start in its place, and how to end it with all that it started."""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Final

from noetl.engine.confinement.groups import bounded_group
from noetl.engine.confinement.policy import Policy

_HERE: Final = Path(__file__).parent

# Each import takes as long as the rest of the start, so the code comes along and nothing is looked for.
_RUN: Final = """
import marshal, os, sys
with open(int(sys.argv[1]), "rb") as told:
    settings, command, env, *codes = marshal.load(told)
kernel, launcher = (type(sys)(name) for name in ("kernel", "launcher"))
for module, code in zip((kernel, launcher), codes):
    exec(code, module.__dict__)
launcher.confine(settings, kernel)
os.execve(command[0], command, env)
"""
_GRACE_SECONDS: Final = 5.0
_SHARED: Final = "/dev/shm"  # noqa: S108 - nothing is written there
_UNBOUNDED: Final = 1 << 26
"""Bytes of shared memory where a program has no bound."""


class Confined:
    """A program to be run confined: start `command` in its place, with `descriptors` inherited and `env` as its environment.

    What the supervisor is told goes by a descriptor, the program's own environment with it: a variable of a task must not
    say what the supervisor loads, and no list of processes shows it. Once the lifeline is cut, everybody below dies.
    """

    def __init__(
        self,
        command: Sequence[str],
        policy: Policy,
        *,
        env: Mapping[str, str],
        memory_bytes: int | None,
        directory: str | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        program = _found(command[0], env)
        self._theirs, self._ours = os.pipe()
        self._told = os.memfd_create("noetl-confined")
        self._cut = False
        self._group = None if memory_bytes is None else bounded_group(memory_bytes)
        own = None if policy.user is None else _own_directory(policy.user)
        directory = None if directory is None else str(Path(directory).absolute())
        self._own = own
        settings = {
            "namespaces": policy.namespaces,
            "user": policy.user,
            "hidden": policy.hidden,
            "kept": policy.kept,
            "writes_kept": policy.writes_kept,
            "sealed": policy.sealed,
            "shared_bytes": _shared_bytes(policy, memory_bytes, directory),
            "groups": [] if self._group is None else [self._group.entry],
            "watched_bytes": memory_bytes if self._group is None else None,
            "lifeline": self._theirs,
            "inherited": list(inherited),
            "directory": directory or own or str(Path.cwd()),
        }
        given = dict(env) if own is None else {**env, "HOME": own}
        with os.fdopen(os.dup(self._told), "wb") as file:
            marshal.dump((settings, [program, *command[1:]], given, *_codes()), file)
        os.lseek(self._told, 0, os.SEEK_SET)
        self.command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _RUN, str(self._told)]
        self.descriptors = (self._theirs, self._told, *inherited)
        self.env = {"PATH": os.defpath}

    def started(self) -> None:
        """Leave to the supervisor what it has inherited."""
        os.close(self._theirs)
        os.close(self._told)

    def cut(self) -> None:
        """End the process and everything it started, at once; any number of times."""
        if not self._cut:
            self._cut = True
            os.close(self._ours)

    def ended(self) -> None:
        """Let go of what the process had, once it is gone."""
        self.cut()
        if self._group is not None:
            self._group.remove()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)


@lru_cache(maxsize=1)
def _codes() -> tuple[CodeType, ...]:
    files = [_HERE / f"{name}.py" for name in ("kernel", "launcher")]
    return tuple(compile(file.read_text(encoding="utf-8"), str(file), "exec") for file in files)


def _found(program: str, env: Mapping[str, str]) -> str:
    """Return the path of a program; a supervisor could only say afterwards that there is none."""
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None:
        code = errno.EACCES if Path(program).exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), program)
    return str(Path(found).absolute())


def _shared_bytes(policy: Policy, memory_bytes: int | None, directory: str | None) -> int | None:
    """Return the size of a task's own shared memory; None where its files lie in that of the machine."""
    files = (directory or str(Path.cwd()), tempfile.gettempdir())
    if not policy.namespaces or any(Path(path).resolve().is_relative_to(_SHARED) for path in files):
        return None
    return memory_bytes or _UNBOUNDED


def _own_directory(user: int) -> str:
    made = tempfile.mkdtemp(prefix="noetl-task-")
    os.chown(made, user, user)
    return made


async def await_end(process: asyncio.subprocess.Process, confined: Confined) -> int:
    """Wait for a supervisor whose lifeline was cut; one that does not end is killed, and takes the others along."""
    confined.cut()
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            return await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        return await process.wait()
