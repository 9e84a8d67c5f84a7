"""What a process may do for an organization: where its requests may go, and with which identities of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from noetl.errors import Denied
from noetl.model.stream import Scope
from noetl.outgoing.reach import ANYWHERE, Reach

IDENTITIES: Final = ("aws", "azure", "environment", "file", "gcp", "k8s", "lambda", "vault")
"""What a process can be logged in to by itself, and what it can read of its own machine."""


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of one organization in one process."""

    reach: Reach = ANYWHERE
    identities: frozenset[str] | None = None
    """Identities of the process that it may use; None are all, of a process that acts for the one user it runs as."""

    def check(self, identity: str, scope: Scope) -> None:
        """Refuse an identity of the process that no administrator granted to the organization."""
        if self.identities is None or identity in self.identities:
            return
        raise Denied(
            f"the server's own identity for {identity} is not granted to {scope.tenant_id}/{scope.organization_id}",
            hint=f"name a credential in auth, or have an administrator add {identity} to the setting secrets.grants",
        )


Rights = Callable[[Scope], Awaitable[Granted]]
"""Tells what is granted to an organization now."""


async def own_rights(scope: Scope) -> Granted:
    """Grant everything: the process acts with the rights of the user who runs it, for that user."""
    return Granted()
