"""The embedded database: a real PostgreSQL server, started on demand in the project's own directory.

In goes the project's home, out comes a server that runs while anybody uses it. Each user holds a shared file lock, so
a killed user is no user; the last one to leave stops the server, unless it was pinned with `noetl db start`. The
module imports only the standard library and blocks; a caller with an event loop acquires it in a thread or beforehand.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from noetl.errors import ConfigError, Unavailable
from noetl.runtime.file_lock import exclusive, is_free, shared, sharers
from noetl.runtime.postgres import password, postmaster, wire
from noetl.runtime.postgres.cluster import DATABASE, OWNER, ensure_cluster
from noetl.runtime.postgres.installation import programs_for
from noetl.runtime.postgres.location import (
    HOST,
    State,
    find_place,
    free_port,
    is_open,
    load_state,
    save_state,
    settle,
    socket_directory,
)
from noetl.runtime.postgres.password import SUPERUSER

LAUNCH_ATTEMPTS = 3


@dataclass(frozen=True)
class ServerInfo:
    """How an embedded server is doing, for people and for `noetl db status --json`."""

    home: Path
    data_dir: Path
    moved_because: str | None
    log_dir: Path
    socket_dir: Path | None
    host: str
    port: int | None
    pid: int | None
    version: str | None
    initialized: bool
    running: bool
    pinned: bool
    users: tuple[int, ...] | None
    uid: int
    account: str
    superuser: str


class EmbeddedServer:
    """One user's handle on the server of one project; not to be shared between threads while acquiring or releasing."""

    def __init__(self, home: Path, made: Callable[[Path], None] | None = None) -> None:
        """Name the project's data directory; nothing is touched yet. `made` is called when the directory is made."""
        self._place = find_place(home)
        self._made = made
        self._registration: int | None = None

    def acquire(self) -> EmbeddedServer:
        """Start the server if it does not run, and stay registered as its user until `release`."""
        with self._locked():
            self._ensure_running()
            if self._registration is None:
                self._registration = shared(self._place.users_lock)
                atexit.register(self.release)
        return self

    def release(self) -> None:
        """Cease to be a user; the last one stops the server unless it is pinned."""
        if self._registration is None:
            return
        registration, self._registration = self._registration, None
        atexit.unregister(self.release)
        if not self._place.base.exists():
            os.close(registration)
            return
        with self._locked():
            os.close(registration)
            if not load_state(self._place).pinned and is_free(self._place.users_lock):
                postmaster.shut_down(self._place)

    def __enter__(self) -> EmbeddedServer:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def start(self) -> ServerInfo:
        """Start the server and pin it: it then runs without users, until `stop`."""
        with self._locked():
            save_state(self._place, replace(self._ensure_running(), pinned=True))
        return self.status()

    def stop(self) -> bool:
        """Stop the server whoever uses it, and unpin it; False if it did not run."""
        if not self._place.base.exists():
            return False
        with self._locked():
            return self._stop()

    def destroy(self) -> None:
        """Stop the server and delete the database with all its data; the payload store is not touched."""
        import shutil

        if not self._place.base.exists():
            return
        with self._locked():
            self._stop()
            socket_dir = load_state(self._place).socket_dir
            # Renamed first: a deletion that is cut short leaves no half database under the real name.
            doomed = self._place.data_dir.with_name("postgres.new")
            shutil.rmtree(doomed, ignore_errors=True)
            with suppress(FileNotFoundError):
                self._place.data_dir.rename(doomed)
                shutil.rmtree(doomed)
            for path in (self._place.state_file, self._place.password_file, self._place.start_log):
                path.unlink(missing_ok=True)
            if socket_dir:
                shutil.rmtree(socket_dir, ignore_errors=True)

    def url(self, user: str = OWNER, database: str = DATABASE, *, tcp: bool = False) -> str:
        """A connection URL by the socket, or by loopback TCP. It names the file of the password, never the password.

        The drivers read the file. Roles of NoETL's own have the password; for any other, call `set_password` once.
        """
        state = load_state(self._place)
        if not state.port:
            raise Unavailable("the database was never started here", hint="noetl db start")
        proof = f"{password.PARAMETER}={quote(str(self._place.password_file), safe='')}"
        if tcp:
            return f"postgresql://{quote(user)}@{HOST}:{state.port}/{quote(database)}?{proof}"
        where = quote(state.socket_dir, safe="")
        return f"postgresql://{quote(user)}@/{quote(database)}?host={where}&port={state.port}&{proof}"

    def set_password(self, user: str) -> None:
        """Let a login role of the user's own connect with the generated password; the server must run."""
        name = '"' + user.replace('"', '""') + '"'
        secret = password.password(self._place)
        statements = (password.ROUNDS, f"ALTER ROLE {name} PASSWORD '{secret}'")
        try:
            path = postmaster.socket_path(load_state(self._place))
            wire.connect_once(path, SUPERUSER, secret, statements=statements)
        except wire.RefusedError as refused:
            raise ConfigError(f"cannot set the password of {user}: {refused}", hint="noetl db migrate") from None
        except OSError as error:
            raise Unavailable("the database does not run", hint="noetl db start") from error

    def status(self) -> ServerInfo:
        """How the server is doing now; asks it, changes nothing."""
        place = self._place
        state = load_state(place)
        version = postmaster.probe(place, state)
        return ServerInfo(
            home=place.home,
            data_dir=place.data_dir,
            moved_because=place.moved_because,
            log_dir=place.log_dir,
            socket_dir=Path(state.socket_dir) if state.socket_dir else None,
            host=HOST,
            port=state.port or None,
            pid=postmaster.find(place),
            version=version,
            initialized=place.data_dir.exists(),
            running=version is not None,
            pinned=state.pinned,
            users=sharers(place.users_lock),
            uid=place.account.uid,
            account=place.account.name,
            superuser=SUPERUSER,
        )

    def _locked(self) -> AbstractContextManager[None]:
        if settle(self._place) and self._made is not None:
            self._made(self._place.home)
        return exclusive(self._place.start_lock)

    def _ensure_running(self) -> State:
        place, state = self._place, load_state(self._place)
        if not password.is_closed(place):
            # An older release's server lets everybody in. It is closed while nobody is connected.
            postmaster.shut_down(place)
        elif postmaster.probe(place, state) is not None:
            return state
        if postmaster.find(place) is not None:
            # It recovers, or it stops on somebody else's word; one that is ready but not on our socket is restarted.
            if not postmaster.claims_ready(place) and postmaster.await_ready(place, state):
                return state
            postmaster.shut_down(place)
        return self._launch(state)

    def _launch(self, state: State) -> State:
        place = self._place
        programs = programs_for(place.account)
        ensure_cluster(place, programs)
        state.socket_dir = str(socket_directory(place, state.socket_dir))
        for _ in range(LAUNCH_ATTEMPTS):
            state.port = free_port(place.base, state.port)
            save_state(place, state)
            postmaster.launch(place, programs, state)
            if postmaster.await_ready(place, state):
                return state
            if is_open(state.port):
                break
        raise Unavailable(
            f"the database does not start; the server said:\n{postmaster.last_words(place)}",
            hint=f"the whole log is in {place.log_dir}",
        )

    def _stop(self) -> bool:
        state = load_state(self._place)
        if state.pinned:
            state.pinned = False
            save_state(self._place, state)
        return postmaster.shut_down(self._place)
