"""Decides where an embedded database stands: its data, locks, state file, password and socket directory.

In goes the project's home, out comes a `Place`. Finding a place writes nothing; `settle` makes the directories.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from noetl.errors import ConfigError, Unavailable
from noetl.runtime.file_lock import give_to_owner_of
from noetl.runtime.postgres.installation import Account, account_for, blocked_at, make_state_directory, state_directory

SOCKET_PATH_BYTES = 103  # sun_path is 104 bytes on macOS and 108 on Linux, with the closing zero
LONGEST_SOCKET_NAME = ".s.PGSQL.65535"


@dataclass(frozen=True)
class Place:
    """Where one embedded database stands, and the account it runs under."""

    home: Path
    base: Path
    account: Account
    moved_because: str | None
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(os.fsencode(self.base)).hexdigest()[:16])

    @property
    def data_dir(self) -> Path:
        """PostgreSQL's own directory; it exists only once it is whole."""
        return self.base / "postgres"

    @property
    def start_lock(self) -> Path:
        """Held alone by whoever starts or stops the server."""
        return self.base / "postgres.lock"

    @property
    def users_lock(self) -> Path:
        """Held together by all who use the server."""
        return self.base / "postgres.users"

    @property
    def alive_lock(self) -> Path:
        """Held by the server's own processes, which inherit it: free means that none of them lives."""
        return self.base / "postgres.alive"

    @property
    def state_file(self) -> Path:
        """Port, socket directory and pin, kept from start to start."""
        return self.base / "postgres.json"

    @property
    def password_file(self) -> Path:
        """The password of every role in the form of libpq's password files, readable by the project's owner alone."""
        return self.base / "postgres.pgpass"

    @property
    def start_log(self) -> Path:
        """What the server said before it opened its own log."""
        return self.base / "postgres.start.log"

    @property
    def log_dir(self) -> Path:
        """The server's log: one file per weekday, begun anew each week."""
        return self.data_dir / "log"


@dataclass
class State:
    """What is remembered from one start to the next."""

    port: int = 0
    socket_dir: str = ""
    pinned: bool = False


def find_place(home: Path) -> Place:
    """Where the database of this project stands, or would stand once it is made."""
    home = home.resolve()
    if (home / "postgres").exists():
        return Place(home, home, account_for(home / "postgres"), None)
    pointer = home / "postgres.location"
    if pointer.exists():
        base, _, reason = pointer.read_text(encoding="utf-8").partition("\n")
        return Place(home, Path(base), account_for(Path(base) / "postgres"), reason.strip())
    account = account_for(home / "postgres")
    obstacle = blocked_at(home, account) if os.geteuid() == 0 else None
    if obstacle is None:
        return Place(home, home, account, None)
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    reason = f"the account {account.name}, which runs the server for root, may not enter {obstacle}"
    return Place(home, state_directory() / digest, account, reason)


def settle(place: Place) -> bool:
    """Make the directories of the place, and leave a note in the project if its data stand elsewhere.

    Tells whether the home was made just now.
    """
    new = not place.home.exists()
    try:
        if new:
            _make_home(place.home)
        if place.base != place.home:
            make_state_directory(place.base.parent)
            place.base.mkdir(exist_ok=True)
            place.base.chmod(0o711)
            if not (place.home / "postgres.location").exists():
                write_private(place.home / "postgres.location", f"{place.base}\n{place.moved_because}\n")
    except OSError as error:
        raise ConfigError(
            f"cannot make the data directory {place.base}: {error.strerror}",
            hint="set NOETL_HOME to a directory that you may write to",
        ) from error
    if place.base != place.home and (obstacle := blocked_at(place.base, place.account)):
        raise ConfigError(
            f"the account {place.account.name}, which runs the server for root, may not enter {obstacle} either",
            hint="set NOETL_STATE_DIR to a directory that every user may enter",
        )
    return new


def _make_home(home: Path) -> None:
    # Made aside and renamed: nobody ever sees it with a mode that is not yet right.
    home.parent.mkdir(parents=True, exist_ok=True)
    scratch = home.with_name(f"{home.name}.{os.urandom(6).hex()}.new")
    scratch.mkdir()
    # Under root another account must pass through to the data; what is inside keeps its own stricter modes.
    scratch.chmod(0o711 if os.geteuid() == 0 else 0o700)
    ignore = scratch / ".gitignore"
    ignore.write_text("*\n", encoding="utf-8")
    try:
        scratch.rename(home)
    except OSError:
        ignore.unlink()
        scratch.rmdir()
        if not home.is_dir():
            raise


def socket_directory(place: Place, remembered: str) -> Path:
    """Make, or check, the directory for the server's socket: the server's account owns it and nobody else may enter."""
    candidates = [place.base / "run"]
    # Drivers take a comma in a host for the start of another host.
    if len(os.fsencode(candidates[0] / LONGEST_SOCKET_NAME)) > SOCKET_PATH_BYTES or "," in str(candidates[0]):
        import tempfile

        candidates = [Path(tempfile.gettempdir()) / f"noetl-{place.digest}", Path("/tmp") / f"noetl-{place.digest}"]  # noqa: S108
        if remembered and Path(remembered).name == candidates[0].name:
            candidates.insert(0, Path(remembered))
    fitting = [path for path in candidates if len(os.fsencode(path / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_BYTES]
    directory = fitting[0]
    if not directory.parent.exists():
        directory = fitting[-1]
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        os.chown(directory, place.account.uid, place.account.gid)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != place.account.uid or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(
            f"{directory} must be a directory that only {place.account.name} may enter", hint=f"remove {directory}"
        )
    return directory


def load_state(place: Place) -> State:
    """What was remembered; nothing if the server was never started."""
    try:
        return State(**json.loads(place.state_file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return State()
    except (ValueError, TypeError):
        return State()  # a torn or foreign file holds nothing that the next start could not choose anew


def save_state(place: Place, state: State) -> None:
    """Remember, whole or not at all."""
    write_private(place.state_file, json.dumps(asdict(state), indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace a file at once; only the owner of its directory can read it."""
    scratch = path.with_name(f"{path.name}.{os.urandom(6).hex()}.new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        give_to_owner_of(path.parent, descriptor)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    scratch.replace(path)


HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below the range from which systems take ports for outgoing connections


def free_port(base: Path, remembered: int = 0) -> int:
    """The remembered port if nobody took it, else a free one."""
    if remembered and is_open(remembered):
        return remembered
    # Each project begins to look at its own place, so that projects started together seldom meet.
    offset = int.from_bytes(hashlib.sha256(os.fsencode(base)).digest()[:4], "big")
    for step in range(len(PORTS)):
        port = PORTS[(offset + step) % len(PORTS)]
        if port != remembered and is_open(port):
            return port
    raise Unavailable(f"no TCP port is free between {PORTS.start} and {PORTS.stop}")


def is_open(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True
