"""Makes the database cluster: checksums, UTF-8, its settings, the two first roles and the `noetl` database.

In goes a place without data, out comes one with a whole cluster: it is made aside and renamed, so half of one never
stands under the real name. An existing cluster is checked, and closed to whoever shows no password if an older release left it open.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from noetl.errors import ConfigError, Unsupported
from noetl.runtime.postgres import password
from noetl.runtime.postgres.installation import MAJOR, Account
from noetl.runtime.postgres.location import Place
from noetl.runtime.postgres.password import SUPERUSER

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
    if not password.is_closed(place):
        _close(place, programs, place.data_dir)


def _make(place: Place, programs: Path) -> None:
    import shutil

    scratch = place.data_dir.with_name("postgres.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    os.chown(scratch, place.account.uid, place.account.gid)
    initdb = [str(programs / "initdb"), "-D", str(scratch), "-U", SUPERUSER, "--no-instructions"]
    initdb += ["--data-checksums", "--encoding=UTF8", "--locale=C"]
    initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    # Nobody gets in before the admission and the passwords of our own stand.
    initdb += ["--auth=reject"]
    initdb += [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    _run(initdb, place.account)
    _close(
        place,
        programs,
        scratch,
        f"CREATE ROLE {OWNER} LOGIN CREATEROLE",
        f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
    )
    scratch.rename(place.data_dir)


def _close(place: Place, programs: Path, data_dir: Path, *first: str) -> None:
    """Give every role a new password while no server runs, and let nobody in without it; the file is written last."""
    secret = password.generated()
    statements = [*first, password.ROUNDS, password.for_every_role(secret, replace=True)]
    single = [str(programs / "postgres"), "--single", "-D", str(data_dir), "-c", "exit_on_error=on"]
    _run([*single, "-c", "log_min_error_statement=panic", "postgres"], place.account, "\n".join(statements) + "\n")
    admission = data_dir / "pg_hba.conf"
    # The directory belongs to the server's account: a link that stood there would lead root elsewhere.
    admission.unlink(missing_ok=True)
    with os.fdopen(os.open(admission, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        os.fchown(file.fileno(), place.account.uid, place.account.gid)
        file.write(password.ADMISSION)
    password.keep(place, secret)


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
