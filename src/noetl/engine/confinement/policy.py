"""How this process confines users' code: what was asked for and what the machine allows go in, what is done comes out.

A process has one policy. Each runtime that is opened in it adds what must be hidden: a task of one never finds the secrets
of another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from noetl.errors import ConfigError, Denied

Isolation = Literal["auto", "user", "namespace", "none"]

TASK_USER: Final = 64_998
"""The user id of tasks under root: nobody's account, and not the one that the embedded database runs under."""

_PROBE_SECONDS: Final = 120.0
_ENOUGH: Final = 0.8
"""The part of the machine's memory that programs without a bound of their own may take in all."""


@dataclass(frozen=True)
class Policy:
    """What is done with every process of users' code."""

    namespaces: bool = False
    user: int | None = None
    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """What is below something hidden and seen nevertheless."""
    writes_kept: bool = False
    sealed: tuple[str, ...] = ()
    """What is read, and written by nobody."""
    weak_because: str | None = None
    """Why tasks have the rights of this account, if they do."""
    memory_bytes: int | None = None
    """The bound on all processes of a task that names none."""

    @property
    def sentence(self) -> str:
        """What to tell people."""
        if self.weak_because is not None:
            return f"tasks have the rights of this account: {self.weak_because}"
        how = "namespaces of their own" if self.namespaces else "this file system"
        whose = "as this account" if self.user is None else f"as user id {self.user}"
        # Threads are confined by mounts, which an ordinary account may make for new processes alone.
        open_ = "" if self.namespaces and os.geteuid() == 0 else "; SQL of DuckDB has the rights of this account"
        return f"tasks run {whose} in {how}; home, keys and socket are hidden from them{open_}"


_policy: Policy | None = None


def policy() -> Policy:
    """Return the policy of this process; before one is set, tasks are confined as well as the machine allows."""
    global _policy
    if _policy is None:
        _policy = decided("auto", shared=False)
    return _policy


def set_policy(asked: Isolation, *, shared: bool, user: int | None, memory_bytes: int | None) -> Policy:
    """Decide for this process. What is hidden already stays so."""
    global _policy
    before = _policy or Policy()
    found = decided(asked, shared=shared, user=user)
    _policy = replace(found, hidden=before.hidden, kept=before.kept, sealed=before.sealed, memory_bytes=memory_bytes)
    return _policy


def hide(hidden: Iterable[Path], kept: Iterable[Path] = (), sealed: Iterable[Path] = ()) -> None:
    """Hide directories and files from processes that are started from now on, but for what they need below them.

    What is `sealed` they read and cannot write, as what is kept, where they run in namespaces.
    """
    global _policy
    now = policy()
    # Shortest first: a directory is covered before what is kept below it is shown again.
    all_hidden = sorted({*now.hidden, *(str(path.resolve()) for path in hidden)}, key=len)
    all_kept = sorted({*now.kept, *(str(path.resolve()) for path in kept)}, key=len)
    all_sealed = sorted({*now.sealed, *(str(path.resolve()) for path in sealed)}, key=len)
    _policy = replace(now, hidden=tuple(all_hidden), kept=tuple(all_kept), sealed=tuple(all_sealed))


def refuse_hidden(path: str | Path) -> None:
    """Refuse a path that a user gave to a tool of this process, where it leads to what tasks must not find.

    It is resolved now: who can change a link afterwards is quicker, so threads are confined too where they can be.
    """
    found = os.path.realpath(path)
    if any(found == one or found.startswith(one.rstrip("/") + "/") for one in (*policy().hidden, "/proc", "/sys")):
        shown = [one for one in policy().kept if found == one or found.startswith(one + "/")]
        if not shown:
            raise Denied(f"{path} is hidden from tasks")


def decided(asked: Isolation, *, shared: bool, user: int | None = None) -> Policy:
    """Return what is done; `shared` says that the code is not that of whoever started this process.

    `auto` takes the strongest that keeps the files of a project in reach: another user id for root where the work is that
    of others, else namespaces. What was asked for by name and cannot be had is an error.
    """
    if asked == "none":
        return Policy(weak_because="worker.isolation is none")
    if sys.platform != "linux":
        return _without(asked, "this system has no namespaces")
    obstacle = namespaces_obstacle()
    other = TASK_USER if user is None else user
    if asked == "user" and os.geteuid() != 0:
        raise ConfigError(
            "worker.isolation is user, and only root can start tasks under another user id",
            hint="start the worker as root, or set worker.isolation to namespace or auto",
        )
    if os.geteuid() == 0 and (asked == "user" or (asked == "auto" and shared)):
        closed = _closed_to_others()
        if closed is None:
            return Policy(namespaces=obstacle is None, user=other)
        if asked == "user":
            raise ConfigError(
                f"tasks cannot run as user id {other}, which may not enter {closed}",
                hint="install Python and NoETL where every user may read them, or set worker.isolation to namespace",
            )
    if obstacle is None:
        return Policy(namespaces=True)
    return _without(asked, obstacle)


def _without(asked: Isolation, why: str) -> Policy:
    if asked == "auto":
        return Policy(weak_because=why)
    raise ConfigError(
        f"worker.isolation is {asked}, which this machine does not allow: {why}",
        hint="allow unprivileged user namespaces, start the worker as root, or set worker.isolation to auto",
    )


@lru_cache(maxsize=1)
def namespaces_obstacle() -> str | None:
    """Return why processes cannot have namespaces of their own here, or None if they can; tried out once."""
    from noetl.engine.confinement.process import Confined

    trial = Confined([sys.executable, "-I", "-S", "-c", ""], Policy(namespaces=True), env={}, memory_bytes=None)
    try:
        done = subprocess.run(
            trial.command,
            env=trial.env,
            pass_fds=trial.descriptors,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"a trial did not succeed: {problem}"
    finally:
        trial.started()
        trial.ended()
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return (said or [f"a trial ended with {done.returncode}"])[-1].removeprefix("the process cannot be confined: ")


def _closed_to_others() -> Path | None:
    """Return the first directory on the way to the interpreter that another user may not enter."""
    for place in {Path(sys.executable).resolve(), Path(sys.executable).absolute(), Path(os.__file__), Path(__file__)}:
        for step in [*reversed(place.parents), place]:
            if not step.stat().st_mode & (0o001 if step.is_dir() else 0o004):
                return step
    return None


def enough_memory() -> int:
    """Return a bound for programs that name none: most of the machine's memory."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _ENOUGH)


def give_to_tasks(directory: Path) -> None:
    """Let a directory with all that is in it belong to whoever tasks run as."""
    user = policy().user
    if user is None:
        return
    for _, _, files, descriptor in os.fwalk(directory):
        for name in (".", *files):
            os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)
