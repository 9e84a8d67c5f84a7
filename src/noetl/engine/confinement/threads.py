"""Confines threads of this process in which tools do what users wrote, such as SQL: what they must not find is covered for them.

Linux gives each thread its own view of the file system if asked to, and threads that it starts inherit that. It takes the
right to mount, which root has; threads of other accounts stay as they are, and `confines_threads` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from noetl.engine.confinement import kernel
from noetl.engine.confinement.policy import Policy

_PROCESSES: Final = Path("/proc")
_OF_PROCESS: Final = ("self/cgroup", "self/mountinfo", "meminfo", "cpuinfo")
"""What libraries read to learn how much of the machine is theirs."""


def confines_threads(policy: Policy) -> bool:
    """Tell whether threads of this process can be confined."""
    return policy.namespaces and os.geteuid() == 0


def confine_thread(policy: Policy, shown: Iterable[Path] = ()) -> None:
    """Cover for this thread, and those it starts, what is hidden and all processes; `shown` directories stay below a cover.

    It raises where that fails: a thread that does not get this far does nothing.
    """
    if not confines_threads(policy):
        return
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.make_private()
    told = {name: text for name in _OF_PROCESS if (text := _read(_PROCESSES / name)) is not None}
    kept = [(str(path.resolve()), os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in shown if path.is_dir()]
    for path in policy.hidden:
        if Path(path).is_dir():
            kernel.cover(path)
            for below, descriptor in kept:
                if below.startswith(path + "/"):
                    Path(below).mkdir(parents=True, exist_ok=True)
                    kernel.bind(f"/proc/self/fd/{descriptor}", below)
            kernel.seal(path)
        elif Path(path).exists():
            kernel.bind(os.devnull, path)
    for _, descriptor in kept:
        os.close(descriptor)
    kernel.cover(str(_PROCESSES))
    for name, text in told.items():
        (_PROCESSES / name).parent.mkdir(exist_ok=True)
        (_PROCESSES / name).write_bytes(text)
    kernel.seal(str(_PROCESSES))
    # By its name: a directory below a cover is another one now.
    os.chdir(Path.cwd())
    # Whoever may mount may also take a cover away, and so could a program that is started from here.
    kernel.keep_capabilities(kernel.OF_FILES)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
