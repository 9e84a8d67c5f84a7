"""Payloads by their locator: text goes in, the reference that an event of the organization carries comes out."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from noetl.errors import InputError, NotFound
from noetl.ledger.database import Database
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_REFERRING: Final = """
SELECT payload_ref AS ref FROM noetl.known_event WHERE payload_sha256 = $1
UNION ALL SELECT fields_ref FROM noetl.known_event WHERE fields_sha256 = $1 LIMIT 1
"""


def digest_at(scope: Scope, locator: str) -> str:
    """Return the digest in the locator of a payload of an organization, or raise InputError."""
    sha256 = locator.rpartition("/")[2]
    if not _DIGEST.fullmatch(sha256) or locator != payload_uri(scope.tenant_id, scope.organization_id, sha256):
        raise InputError(
            f"{locator[:200]!r} is not the locator of a payload of this organization",
            hint=payload_uri(scope.tenant_id, scope.organization_id, "<digest>"),
        )
    return sha256


async def payload_at(database: Database, scope: Scope, locator: str) -> PayloadRef:
    """Return the reference a locator stands for; NotFound where no event of the organization refers to the payload."""
    sha256 = digest_at(scope, locator)
    async with database.transaction(scope) as connection:
        found = await connection.fetchval(_REFERRING, sha256)
    if found is None:
        raise NotFound(f"no event refers to a payload {sha256}")
    return msgspec.json.decode(found, type=PayloadRef)
