"""What `noetl credentials` opens: the store of credentials, or that of API tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.model.stream import Scope
    from noetl.services.credentials.store import CredentialStore
    from noetl.services.credentials.tokens import ApiTokens


@asynccontextmanager
async def opened_credentials() -> AsyncIterator[tuple[CredentialStore, Scope]]:
    """Give the credentials, with the master keys, and the organization the settings name, for the time of the block."""
    from noetl.runtime.config import load_settings
    from noetl.runtime.secrets import open_keyring
    from noetl.runtime.wiring import open_runtime
    from noetl.services.credentials.store import CredentialStore

    async with open_runtime(load_settings()) as runtime:
        yield CredentialStore(runtime.database, open_keyring(runtime.settings)), runtime.scope


@asynccontextmanager
async def opened_tokens() -> AsyncIterator[tuple[ApiTokens, Scope]]:
    """Give the API tokens and the organization the settings name, for the time of the block."""
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.services.credentials.tokens import ApiTokens

    async with open_runtime(load_settings()) as runtime:
        yield ApiTokens(runtime.database), runtime.scope
