"""Which acknowledged facts are gone: neither in the ledger nor any longer in the stream that acknowledged them."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from noetl.ledger.database import Database
from noetl.model.read_token import ReadToken
from noetl.model.stream import Scope
from noetl.stream.journal import Noted, noted_in
from noetl.stream.port import EventStream

_log = logging.getLogger(__name__)

_KNOWN = """
SELECT e.execution_id, e.event_id FROM unnest($1::bigint[], $2::bigint[]) AS asked (execution_id, event_id)
JOIN noetl.event AS e USING (execution_id, event_id)
"""
_ASKED_TOGETHER = 5_000


class Lost(msgspec.Struct, frozen=True):
    """One fact that is gone."""

    noted: Noted

    def told(self) -> dict[str, Any]:
        """Return what to tell of it, with the token that its writer was given."""
        own = self.noted
        token = ReadToken(own.execution_id, own.event_id, own.shard, own.sequence, own.created)
        return {
            "event_id": str(own.event_id), "execution_id": str(own.execution_id), "tenant_id": own.tenant_id,
            "organization_id": own.organization_id, "shard": own.shard, "sequence": own.sequence,
            "read_token": str(token),
        }  # fmt: skip


async def lost_facts(database: Database, stream: EventStream, directory: Path) -> list[Lost]:
    """Return what is gone of the facts that processes beside this directory published; settled files are removed."""
    state = await stream.open()
    gone: list[Lost] = []
    for path, noted in noted_in(directory):
        known = await _in_ledger(database, noted)
        missing = [one for one in noted if (one.scope, one.execution_id, one.event_id) not in known]
        gone += [
            Lost(one) for one in missing if one.created != state.created or one.sequence > state.last_sequence
        ]  # what is left is in the stream and will be materialized
        if not missing and not _in_use(path):
            path.unlink(missing_ok=True)
    return gone


async def _in_ledger(database: Database, noted: list[Noted]) -> set[tuple[Scope, int, int]]:
    by_scope: dict[Scope, list[Noted]] = defaultdict(list)
    for one in noted:
        by_scope[one.scope].append(one)
    found: set[tuple[Scope, int, int]] = set()
    for scope, mine in by_scope.items():
        for start in range(0, len(mine), _ASKED_TOGETHER):
            some = mine[start : start + _ASKED_TOGETHER]
            async with database.transaction(scope) as connection:
                rows = await connection.fetch(
                    _KNOWN, [one.execution_id for one in some], [one.event_id for one in some]
                )
            found |= {(scope, row["execution_id"], row["event_id"]) for row in rows}
    return found


def _in_use(path: Path) -> bool:
    """Tell whether the process that writes the file still lives."""
    pid = path.stem.split("-")[1]
    return Path(f"/proc/{pid}").exists()
