"""Which tenants were erased, as the ledger says: a tenant goes in, whether an event records its erasure comes out."""

from __future__ import annotations

from typing import Final

from noetl.ledger.database import Database

# The stream outlives the month of its event.
_RECORDED: Final = """
SELECT EXISTS (SELECT FROM noetl.stream WHERE tenant_id = $1 AND stream_id = 'erasure/' || $1 AND version > 0)
"""


class RecordedErasures:
    """Asks the ledger's database, and remembers what will never change again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._erased: set[str] = set()

    async def __call__(self, tenant_id: str) -> bool:
        """Tell whether the payloads of a tenant were erased on purpose."""
        if tenant_id not in self._erased:
            async with self._database.transaction(None, "projector") as connection:
                if await connection.fetchval(_RECORDED, tenant_id):
                    self._erased.add(tenant_id)
        return tenant_id in self._erased
