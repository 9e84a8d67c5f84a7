"""Bounds the memory of a process and of all that it starts, where control groups may be made: a bound goes in, a group comes out.

Groups stand below the one this process is in. One that a killed worker left is removed by the next worker that makes one.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "noetl-"
_NUMBERS: Final = count(1)
_BUSY_SECONDS: Final = 2.0


class Group(NamedTuple):
    """A control group of one confined process."""

    path: Path

    @property
    def entry(self) -> str:
        """The file by which a process enters the group."""
        return str(self.path / "cgroup.procs")

    def remove(self) -> None:
        """Remove the group; the last of its processes may need a moment to be gone."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.005)
            else:
                return


def is_possible() -> bool:
    """Whether groups can be made here."""
    return _above() is not None


def bounded_group(memory_bytes: int) -> Group | None:
    """Make a group whose processes have so much memory in all; None where groups cannot be made."""
    above = _above()
    if above is None:
        return None
    path = above / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    try:
        path.mkdir()
        _limit(path, memory_bytes)
    except OSError:
        with suppress(OSError):
            path.rmdir()
        return None
    return Group(path)


@lru_cache(maxsize=1)
def _above() -> Path | None:
    """Return the group below which ours are made, found out by making one."""
    for above in _candidates():
        trial = above / f"{_PREFIX}{os.getpid()}-0"
        try:
            trial.mkdir()
        except OSError:
            continue
        try:
            _limit(trial, 1 << 30)
        except OSError:
            continue
        finally:
            with suppress(OSError):
                trial.rmdir()
        _remove_left(above)
        return above
    return None


def _candidates() -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found.append(_ROOT / "memory" / path.lstrip("/"))
        elif number == "0" and (_ROOT / "cgroup.controllers").exists():
            # With processes of its own a group of version 2 gives its children no controllers; the one above may.
            own = _ROOT / path.lstrip("/")
            found += [own, own.parent] if own != _ROOT else [own]
    return found


def _limit(path: Path, memory_bytes: int) -> None:
    if (path / "memory.max").exists():
        (path / "memory.max").write_text(str(memory_bytes))
        with suppress(OSError):
            (path / "memory.swap.max").write_text("0")
        with suppress(OSError):
            (path / "memory.oom.group").write_text("1")
    else:
        (path / "memory.limit_in_bytes").write_text(str(memory_bytes))
        with suppress(OSError):
            (path / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))


def _remove_left(above: Path) -> None:
    for path in above.glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                path.rmdir()
