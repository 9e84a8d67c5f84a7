"""Unpacked code of DAG versions on this machine: what no version in use has, and is old, may go; it can be unpacked again."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from noetl.kernel.ledger.postgres.database import Database
from noetl.services.retention.plan import Line
from noetl.services.retention.policy import Policy

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
# Of all organizations: they share the machine. What was in use a while ago is gone back to most likely.
_IN_USE: Final = """
SELECT DISTINCT v.code_digest FROM noetl.dag_version AS v
WHERE v.status IN ('building', 'ready', 'active') OR v.activated_at > clock_timestamp() - make_interval(days => $1)
   OR EXISTS (SELECT FROM noetl.task AS t WHERE t.dag_version_id = v.dag_version_id AND t.tenant_id = v.tenant_id
              AND t.organization_id = v.organization_id AND t.available_at IS NOT NULL)
"""


async def unused_bundles(
    database: Database, home: Path, policy: Policy, now: datetime
) -> tuple[tuple[str, ...], list[Line]]:
    """Return the digests of unpacked code that may go, and what is to be said of each."""
    there = await asyncio.to_thread(_there, home)
    if not there:
        return (), []
    days = policy.bundle_days
    async with database.transaction(None, "reaper") as connection:
        used = {row[0] for row in await connection.fetch(_IN_USE, days or 0)}
    going, lines = [], []
    for digest, (size, modified) in sorted(there.items()):
        why = None
        if digest in used:
            why = "a version in use, or lately in use, has it"
        elif days is None or now - modified <= timedelta(days=days):
            why = "too young"
        else:
            going.append(digest)
        lines.append(
            Line(
                kind="bundles", subject="on this machine", action="remove" if why is None else "keep",
                why=why or f"no version in use has it, unpacked more than {days} d ago", items=1, bytes=size,
            )
        )  # fmt: skip
    return tuple(going), lines


async def remove_bundles(home: Path, digests: Sequence[str]) -> tuple[int, int]:
    """Remove unpacked code, and return how many and how many bytes."""
    there = await asyncio.to_thread(_there, home)
    gone = [digest for digest in digests if digest in there and _DIGEST.fullmatch(digest)]
    for digest in gone:
        # The archive goes first: whoever unpacks in between makes both anew.
        (home / f"{digest}.zip").unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, home / digest, ignore_errors=True)
    return len(gone), sum(there[digest][0] for digest in gone)


def _there(home: Path) -> dict[str, tuple[int, datetime]]:
    found = {}
    for one in home.iterdir() if home.is_dir() else ():
        if one.is_dir() and _DIGEST.fullmatch(one.name):
            size = sum(file.stat().st_size for file in one.rglob("*") if file.is_file())
            found[one.name] = size, datetime.fromtimestamp(one.stat().st_mtime, UTC)
    return found
