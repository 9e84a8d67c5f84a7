"""Starts a confined process and stays with it: settings go in, the caller goes on as the confined process.

The process that was started is the supervisor. It outlives the confined one by a moment: it kills whoever that one left
behind, wherever they went, and ends as it ended. When the worker lets go of the lifeline, or is gone, all of them die.
Its code is handed to an interpreter that has loaded nothing, so it imports as little as it can.
"""

# Neither pathlib nor contextlib is used: they take longer to load than all the rest here.
# ruff: noqa: PTH103, PTH110, PTH112, PTH123, PTH208, SIM105
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what it is called elsewhere loads enumerations first
import os
import resource
import select
import sys

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    from typing import Any, NoReturn

FAILED = 125
"""Exit code of a supervisor that could not confine; it says why on standard error."""

_WATCH_MILLISECONDS = 200
_STATUS_BYTES = 4
_SHARED = "/dev/shm"  # noqa: S108


def confine(settings: dict[str, Any], kernel: Any) -> None:
    """Return in the confined process; the supervisor never returns."""
    kernel.adopt_orphans()
    status, told = os.pipe()
    spaces, number = settings["namespaces"], os.getpid()
    try:
        if spaces:
            _enter_namespaces(kernel)
        child = os.fork()
    except OSError as problem:
        _fail(problem)
    if child:
        os.close(told)
        _Supervisor(settings, child, status).stay()
    os.close(status)
    try:
        # One that the supervisor's death cannot reach any more would live for ever.
        kernel.die_with_parent()
        _join(settings["groups"])
        if spaces:
            _hide(settings, kernel)
            # Programs name files after their process number: with one from outside no two tasks have the same.
            _write("/proc/sys/kernel/ns_last_pid", str(number - 1), must=False)
            child = os.fork()
            if child:
                _be_first(settings, child, told)
        _become_confined(settings, kernel)
    except OSError as problem:
        _fail(problem)
    os.close(told)


def _enter_namespaces(kernel: Any) -> None:
    # Mounts come later: the supervisor goes on in those it has, where /proc has the numbers that it can signal.
    spaces = kernel.NEW_PIDS | kernel.NEW_IPC
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        kernel.unshare(spaces)
        return
    kernel.unshare(spaces | kernel.NEW_USER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        _write(f"/proc/self/{name}", text)


def _hide(settings: dict[str, Any], kernel: Any) -> None:
    """Cover what the confined process must not find; what it needs below a cover is shown again."""
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.make_private()
    for path in settings["sealed"]:
        if os.path.exists(path):
            kernel.read_only(path)
    # Whoever may write here leaves the group that bounds its memory.
    if os.path.isdir("/sys/fs/cgroup"):
        kernel.read_only("/sys/fs/cgroup")
    if settings["shared_bytes"] and os.path.isdir(_SHARED):
        kernel.mount_memory(_SHARED, settings["shared_bytes"])
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in settings["kept"] if os.path.isdir(path)]
    for path in settings["hidden"]:
        if os.path.isdir(path):
            kernel.cover(path)
            for below, shown in kept:
                if below.startswith(path + "/"):
                    os.makedirs(below, exist_ok=True)
                    kernel.bind(f"/proc/self/fd/{shown}", below)
                    if not settings["writes_kept"]:
                        kernel.read_only(below)
            kernel.seal(path)
        elif os.path.exists(path):
            kernel.bind(os.devnull, path)
    for _, shown in kept:
        os.close(shown)
    kernel.mount_processes()


def _be_first(settings: dict[str, Any], child: int, told: int) -> NoReturn:
    """Be the first process of the namespace: pass signals on, bury orphans, and take everybody along at the end."""
    _let_go(settings, told)
    signal.signal(signal.SIGTERM, lambda number, frame: _signal_group(child, number))
    while True:
        ended, status = os.wait()
        if ended == child:
            os.write(told, status.to_bytes(_STATUS_BYTES, "big"))
            os._exit(0)


def _become_confined(settings: dict[str, Any], kernel: Any) -> None:
    os.setsid()
    os.close(settings["lifeline"])
    # By its name and not as it was inherited: a directory below a cover is another one now.
    os.chdir(settings["directory"] if os.path.isdir(settings["directory"]) else "/")
    # Should the machine run out of memory, this process goes before the worker.
    _write("/proc/self/oom_score_adj", "1000", must=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kernel.adopt_orphans()
    if settings["user"] is not None:
        os.setgroups([])
        os.setresgid(*[settings["user"]] * 3)
        os.setresuid(*[settings["user"]] * 3)
        kernel.gain_nothing()
    elif settings["namespaces"]:
        # Whoever may mount may also take a cover away.
        kernel.keep_capabilities(kernel.OF_FILES if os.geteuid() == 0 else ())
        if os.geteuid() != 0:
            kernel.gain_nothing()
    if not settings["namespaces"]:
        kernel.die_with_parent()  # another user id forgets it


class _Supervisor:
    """Waits for the end of a confined process, and makes sure that it is the end."""

    def __init__(self, settings: dict[str, Any], child: int, status: int) -> None:
        self._settings = settings
        self._child = child
        self._status = status
        self._ended = False
        self._lifeline: int = settings["lifeline"]
        _let_go(settings, status, self._lifeline)

    def stay(self) -> NoReturn:
        """End as the confined process ended; killed, when the worker lets go."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._pass_on(number))
        looks = select.poll()
        looks.register(self._lifeline, select.POLLIN)
        looks.register(woken, select.POLLIN)
        most = self._settings["watched_bytes"]
        while True:
            came = dict(looks.poll(_WATCH_MILLISECONDS if most else None))
            if woken in came:
                os.read(woken, 4_096)
            if self._lifeline in came or (most and self._taken() > most):
                self._end(signal.SIGKILL)
            ended, status = os.waitpid(self._child, os.WNOHANG)
            if ended:
                self._ended = True
                said = os.read(self._status, _STATUS_BYTES) if self._settings["namespaces"] else b""
                self._end_as(int.from_bytes(said, "big") if len(said) == _STATUS_BYTES else status)

    def _taken(self) -> int:
        return _resident(_descendants(os.getpid())) + (_shared_of(self._child) if self._settings["shared_bytes"] else 0)

    def _pass_on(self, number: int) -> None:
        if self._settings["namespaces"]:
            os.kill(self._child, number)
        else:
            _signal_group(self._child, number)

    def _end_as(self, status: int) -> NoReturn:
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            self._end(-code)
        self._kill_all()
        os._exit(code)

    def _end(self, number: int) -> NoReturn:
        self._kill_all()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)

    def _kill_all(self) -> None:
        """Kill every descendant. Those that lost their parents are our own children, wherever they had gone."""
        while True:
            # The first process of a namespace takes all others along.
            spaces = self._settings["namespaces"]
            below = ([] if self._ended else [self._child]) if spaces else _descendants(os.getpid())
            for one in below:
                try:
                    os.kill(one, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                # Not before somebody has ended: one that forks is met again as a child of ours.
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    look = [pid]
    while look:
        one = look.pop()
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children") as told:
                    own = [int(text) for text in told.read().split()]
                found += own
                look += own
        except OSError:
            continue
    return found


def _resident(pids: list[int]) -> int:
    """Return how much memory processes take together; what they share is counted once for each."""
    pages = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as told:
                pages += int(told.read().split()[1])
        except (OSError, IndexError):
            continue
    return pages * resource.getpagesize()


def _shared_of(pid: int) -> int:
    """Return how much lies in the shared memory that a process sees, whoever has it open."""
    try:
        found = os.statvfs(f"/proc/{pid}/root{_SHARED}")
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _let_go(settings: dict[str, Any], *needed: int) -> None:
    """Keep no descriptor of the confined process open: whoever reads from it waits for the last one to close."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for descriptor in {nothing, settings["lifeline"], *settings["inherited"]} - {0, 1, 2, *needed}:
        os.close(descriptor)


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        pass


def _join(groups: list[str]) -> None:
    for path in groups:
        _write(path, "0")


def _write(path: str, text: str, *, must: bool = True) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        if must:
            raise


def _fail(problem: OSError) -> NoReturn:
    sys.stderr.write(f"the process cannot be confined: {problem.strerror or problem}\n")
    sys.stderr.flush()
    os._exit(FAILED)
