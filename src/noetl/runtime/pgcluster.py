"""Makes the database cluster: checksums, UTF-8, its settings, the two first roles and the `noetl` database.

In goes a place without data, out comes one with a whole cluster: it is made aside and renamed, so half of one never
stands under the real name. An existing cluster is only checked.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from noetl.errors import ConfigError, Unavailable, Unsupported
from noetl.runtime.pginstall import MAJOR, Account
from noetl.runtime.pgplace import Place, write_private

SUPERUSER = "noetl_admin"
OWNER = "noetl_owner"
DATABASE = "noetl"

SETTINGS = {
    "shared_buffers": "128MB",
    "max_connections": "200",
    "wal_level": "logical",
    "password_encryption": "scram-sha-256",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "on",
    "log_directory": "log",
    "log_filename": "postgres-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_checkpoints": "off",
    "log_error_verbosity": "terse",
    # Conflicts between writers are answered as errors by design; their statements would fill the log.
    "log_min_error_statement": "fatal",
}
"""Written to postgresql.conf when the cluster is made; fsync and its kin keep PostgreSQL's safe defaults."""


def ensure_cluster(place: Place, programs: Path) -> None:
    """Make the cluster if there is none, else check that this PostgreSQL can run it."""
    if not place.data_dir.exists():
        _make(place, programs)
        return
    version_file = place.data_dir / "PG_VERSION"
    version = version_file.read_text(encoding="utf-8").strip() if version_file.exists() else "of no version"
    if version != MAJOR:
        raise Unsupported(
            f"the data in {place.data_dir} are PostgreSQL {version}, the installed programs are PostgreSQL {MAJOR}",
            hint="dump them with the release of NoETL that made them, and load them into a new project",
        )
    if os.geteuid() == 0 and place.data_dir.stat().st_uid == 0:
        _give_away(place.data_dir, place.account)


def password(place: Place) -> str:
    """The generated password of the login roles on loopback TCP."""
    try:
        return place.password_file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise Unavailable("the database was never started here", hint="noetl db start") from None


def new_password(place: Place) -> str:
    """Generate the password and keep it where only the project's owner can read it."""
    secret = os.urandom(24).hex()
    write_private(place.password_file, secret + "\n")
    return secret


def _make(place: Place, programs: Path) -> None:
    import shutil

    scratch = place.data_dir.with_name("postgres.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    os.chown(scratch, place.account.uid, place.account.gid)
    initdb = [str(programs / "initdb"), "-D", str(scratch), "-U", SUPERUSER, "--no-instructions"]
    initdb += ["--data-checksums", "--encoding=UTF8", "--locale=C"]
    initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    # Trust is for the socket alone, whose directory only the server's account and root may enter.
    initdb += ["--auth-local=trust", "--auth-host=scram-sha-256"]
    initdb += [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    _run(initdb, place.account)
    secret = new_password(place)
    statements = [
        f"ALTER ROLE {SUPERUSER} PASSWORD '{secret}'",
        f"CREATE ROLE {OWNER} LOGIN CREATEROLE PASSWORD '{secret}'",
        f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
    ]
    single = [str(programs / "postgres"), "--single", "-D", str(scratch), "-c", "exit_on_error=on"]
    _run([*single, "-c", "log_min_error_statement=panic", "postgres"], place.account, "\n".join(statements) + "\n")
    scratch.rename(place.data_dir)


def _run(command: list[str], account: Account, text: str = "") -> None:
    done = subprocess.run(
        command, input=text, capture_output=True, encoding="utf-8", check=False, **account.subprocess_options()
    )
    if done.returncode:
        reason = [line for line in done.stderr.splitlines() if "error" in line.lower() or "FATAL" in line]
        raise ConfigError(
            f"cannot make the database: {(reason or [f'{Path(command[0]).name} exited with {done.returncode}'])[0]}",
            hint="check free space and the rights on the data directory, or set NOETL_HOME to another one",
        )


def _give_away(directory: Path, account: Account) -> None:
    for _, folders, files, descriptor in os.fwalk(directory):
        for name in [*folders, *files]:
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(directory, account.uid, account.gid)
