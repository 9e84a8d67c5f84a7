"""What a server may do on behalf of an organization: decided by whether it acts for others, and by what is granted."""

from __future__ import annotations

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.outgoing.guard import Granted, Reach, Rights
from noetl.model.stream import Scope
from noetl.runtime.settings.declaration import Settings
from noetl.services.credentials.tokens import ApiTokens


def rights_of(settings: Settings, database: Database) -> Rights:
    """Return what tells the rights of organizations.

    Where nobody was ever given a token, the server answers the account it runs as, and acts with that account's rights.
    From the first token on it acts for others: only global addresses, and no identity of its own that is not granted.
    """
    tokens = ApiTokens(database)
    own = Scope(settings.runtime.tenant_id, settings.runtime.organization_id)

    async def rights(scope: Scope) -> Granted:
        if scope == own and not settings.server.require_tokens and not await tokens.any_ever(scope):
            return Granted()
        granted = settings.secrets.grants.get(f"{scope.tenant_id}/{scope.organization_id}")
        identities: frozenset[str] = frozenset(() if granted is None else granted.identities)
        return Granted(reach=Reach(allowed=settings.outgoing.allowed), identities=identities)

    return rights
