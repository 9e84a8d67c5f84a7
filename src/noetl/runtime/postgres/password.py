"""The password of the embedded database: every role has it, on the socket and on loopback TCP, and one file keeps it.

The file is a libpq password file that only the project's owner reads. Connection URLs name the file and never the password,
so that they can be printed, logged and shown in a list of processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from noetl.errors import Unavailable
from noetl.runtime.postgres.location import Place, write_private

PARAMETER = "passfile"
SUPERUSER = "noetl_admin"

ADMISSION = """\
# Written by NoETL: nobody gets in without a password, not even on the socket. Kept as it is while this line stands.
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
local replication all scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""
"""Who may connect: pg_hba.conf of the cluster."""

# The password has 192 random bits, which no number of rounds makes harder to guess; each one is paid at every connection.
ROUNDS = "SET scram_iterations = 1"


def password(place: Place) -> str:
    """Return the generated password of the login roles."""
    found = known(place)
    if found is None:
        raise Unavailable("the database was never started here", hint="noetl db start")
    return found


def known(place: Place) -> str | None:
    """Return the password, or None where there is none or we may not read it."""
    try:
        return place.password_file.read_text(encoding="utf-8").strip().rpartition(":")[2]
    except (FileNotFoundError, PermissionError):
        return None


def generated() -> str:
    """Return a new password."""
    return os.urandom(24).hex()


def keep(place: Place, secret: str) -> None:
    """Write the password where only the project's owner can read it."""
    write_private(place.password_file, f"*:*:*:*:{secret}\n")
    # Releases before kept another password here, in reach of every process of the account.
    place.base.joinpath("postgres.password").unlink(missing_ok=True)


def is_closed(place: Place) -> bool:
    """Whether the cluster asks everybody for the password, and we have one to show."""
    try:
        admission = (place.data_dir / "pg_hba.conf").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return admission.partition("\n")[0] == ADMISSION.partition("\n")[0] and place.password_file.exists()


def for_every_role(secret: str, *, replace: bool) -> str:
    """Return the statement, in one line, that gives the password to each login role that has none, or to ours anew."""
    ours = r" OR rolname LIKE 'noetl\_%'" if replace else ""
    roles = f"SELECT rolname FROM pg_authid WHERE rolcanlogin AND (rolpassword IS NULL{ours})"  # noqa: S608
    change = f"EXECUTE format('ALTER ROLE %I PASSWORD %L', one, '{secret}')"
    return f"DO $$ DECLARE one name; BEGIN FOR one IN {roles} LOOP {change}; END LOOP; END $$"


def admit_new_roles(owner_url: str) -> None:
    """Give the password to roles that a migration made. Does nothing on a server that is not the embedded one."""
    import psycopg

    files = parse_qs(urlsplit(owner_url).query).get(PARAMETER, [])
    if not files:
        return
    secret = Path(files[0]).read_text(encoding="utf-8").strip().rpartition(":")[2]
    with psycopg.connect(owner_url, user=SUPERUSER, dbname="postgres") as admin:
        # Roles belong to the whole server: migrations of its databases would change the same rows at once.
        admin.execute("SELECT pg_advisory_xact_lock(5641093212)")
        admin.execute(ROUNDS.encode())
        admin.execute(for_every_role(secret, replace=False).encode())
