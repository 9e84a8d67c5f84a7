"""Lists running processes with their user and command line; signals none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def processes(pid: int | None = None) -> Iterator[tuple[int, int, str]]:
    """Pid, user id and command line, each argument followed by a blank, of one process or of all.

    The command line is readable for every user, unlike a process's directory; a zombie has none left.
    """
    if not Path("/proc/self/cmdline").exists():
        yield from _from_ps(pid)
        return
    for entry in Path("/proc").iterdir() if pid is None else [Path("/proc", str(pid))]:
        if entry.name.isdecimal():
            with suppress(OSError):  # it ended while we looked
                arguments = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(entry.name), entry.stat().st_uid, os.fsdecode(arguments)


def _from_ps(pid: int | None) -> Iterator[tuple[int, int, str]]:
    which = ["-ax"] if pid is None else ["-p", str(pid)]
    listing = subprocess.run(["ps", *which, "-o", "pid=,uid=,command="], capture_output=True, text=True, check=False)
    for line in listing.stdout.splitlines():
        number, uid, command = line.split(None, 2)
        yield int(number), int(uid), command + " "
