"""Launches, finds, awaits and shuts down the server process of one place.

It trusts no number in a pid file: a process is the server only if its command line names the data directory and its
owner is the server's account. It never signals anything else.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from noetl.errors import Unavailable
from noetl.runtime.file_lock import POLL_SECONDS, is_free, wait_exclusive
from noetl.runtime.postgres import wire
from noetl.runtime.postgres.location import Place, State, load_state
from noetl.runtime.postgres.password import SUPERUSER, known
from noetl.runtime.processes import processes

START_SECONDS = 300.0  # replaying a long write-ahead log after a crash is work, not a hang
STOP_SECONDS = 300.0
ORPHAN_SECONDS = 10.0
LARGEST_LOG = 16 * 1024 * 1024


def find(place: Place) -> int | None:
    """The process id of the running server, or None."""
    pid = _pid_in_file(place)
    if pid is None:
        return None
    for _, uid, command in processes(pid):
        if uid == place.account.uid and (f"/postgres -D {place.data_dir} " in command or _stands_in(pid, place)):
            return pid
    return None


def claims_ready(place: Place) -> bool:
    """Whether the pid file says that the server takes connections."""
    with suppress(OSError):
        return (place.data_dir / "postmaster.pid").read_text(encoding="utf-8").rstrip().endswith("\nready")
    return False


def probe(place: Place, state: State) -> str | None:
    """The version of the server if it takes connections now, else None."""
    if not state.port:
        return None
    try:
        return wire.connect_once(socket_path(state), SUPERUSER, known(place))["server_version"]
    except wire.RefusedError as refused:
        # Too many clients and the like: it lives and works, only not for us at this moment.
        return None if refused.sqlstate == wire.CANNOT_CONNECT_NOW else "unknown"
    except OSError:
        return None


def socket_path(state: State) -> Path:
    """The socket file a client connects to."""
    return Path(state.socket_dir) / f".s.PGSQL.{state.port}"


def launch(place: Place, programs: Path, state: State) -> None:
    """Start the server process, detached from ours; `await_ready` tells what became of it."""
    alive = _inherit(place)
    _drop_large_logs(place)
    settings = {
        "port": state.port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": _quoted(state.socket_dir),
        "unix_socket_permissions": "0700",
        "cluster_name": _cluster_name(place),
    }
    options = ["-D", str(place.data_dir)]
    options += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = [str(programs / "pg_ctl"), "start", "--silent", "--no-wait", "-o", shlex.join(options)]
    account = place.account.subprocess_options()
    # The data directory goes by the environment: pg_ctl would put its own -D into a shell command unquoted.
    account["env"] |= {"PGDATA": str(place.data_dir)}
    try:
        log = os.open(place.start_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[alive], check=False, **account
            )
        finally:
            os.close(log)
    finally:
        os.close(alive)


def await_ready(place: Place, state: State, seconds: float = START_SECONDS) -> bool:
    """Wait until the server takes connections; False if it ended instead."""
    deadline = time.monotonic() + seconds
    # The pid file is asked first: each connection refused during recovery would be a line in the server's log.
    while not (claims_ready(place) and probe(place, state)):
        if is_free(place.alive_lock) and find(place) is None:
            return False
        if time.monotonic() > deadline:
            raise Unavailable(f"the database is not ready after {seconds:.0f} s", hint=f"see {place.log_dir}")
        time.sleep(POLL_SECONDS)
    return True


def shut_down(place: Place) -> bool:
    """Stop the server, its clients disconnected and its data flushed; False if it did not run."""
    pid = find(place)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    while find(place) == pid or not is_free(place.alive_lock):
        if time.monotonic() > deadline:
            raise Unavailable(f"the database did not stop within {STOP_SECONDS:.0f} s", hint=f"see {place.log_dir}")
        time.sleep(POLL_SECONDS)
    return True


def last_words(place: Place) -> str:
    """The last lines the server logged, for an error message."""
    logs = sorted(place.log_dir.glob("*.log"), key=lambda path: path.lstat().st_mtime)
    lines: list[str] = []
    for path in [place.start_log, *logs[-1:]]:
        if path.is_file() and not path.is_symlink():
            lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-4:]
    return "\n".join(lines)


def _inherit(place: Place) -> int:
    # The lock is the proof that no process of a former server lives; only then are its pid files surely stale, even
    # where the numbers in them belong to strangers by now.
    alive = wait_exclusive(place.alive_lock, ORPHAN_SECONDS)
    if alive is None:
        # Orphans exit by themselves unless busy. Ending them loses nothing: recovery takes up what they wrote.
        for pid, uid, command in processes():
            if uid == place.account.uid and command.startswith(f"postgres: {_cluster_name(place)}: "):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGQUIT)
        alive = wait_exclusive(place.alive_lock, ORPHAN_SECONDS)
    if alive is None:
        raise Unavailable("processes of a former server will not end", hint=f"end those that use {place.data_dir}")
    if find(place) is None:
        (place.data_dir / "postmaster.pid").unlink(missing_ok=True)
        for remains in Path(load_state(place).socket_dir or place.base / "run").glob(".s.PGSQL.*"):
            remains.unlink(missing_ok=True)
    return alive


def _pid_in_file(place: Place) -> int | None:
    try:
        return int((place.data_dir / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _stands_in(pid: int, place: Place) -> bool:
    with suppress(OSError):
        # A server started by hand may have been given a relative path; PostgreSQL then still works in its data.
        links = Path(f"/proc/{pid}")
        return (links / "exe").readlink().name == "postgres" and (links / "cwd").readlink() == place.data_dir
    return False


def _drop_large_logs(place: Place) -> None:
    # PostgreSQL empties a weekday's file only if it runs at midnight. The directory belongs to the server's account,
    # so root goes through a descriptor and follows no link.
    with suppress(FileNotFoundError):
        directory = os.open(place.log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in os.listdir(directory):  # noqa: PTH208 - a path would not do
                if os.stat(name, dir_fd=directory, follow_symlinks=False).st_size > LARGEST_LOG:
                    os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def _cluster_name(place: Place) -> str:
    return f"noetl-{place.digest}"


def _quoted(directory: str) -> str:
    # The setting is a list of names; within double quotes commas and blanks are part of one.
    return '"' + directory.replace('"', '""') + '"'
