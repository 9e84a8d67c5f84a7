"""The keychain of a playbook: its entries go in, `keychain.<name>.<field>` comes out with secrets as `Secret`s.

Entries that ask a server are kept, encrypted, until they expire; of many that need one at the same time, one asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from noetl.engine.catalog.evaluation import Evaluating
from noetl.errors import NoetlError, NotFound
from noetl.language.playbook.model import KeychainEntry
from noetl.language.templates.origins import origins_at
from noetl.model.canonical import digest_of
from noetl.model.stream import Scope
from noetl.services.credentials.keychain.fetcher import REMOTE, Fetched, Fetcher
from noetl.services.credentials.keychain.rows import Held, KeychainInfo, KeychainRows, KeychainUse, cache_key_of
from noetl.services.credentials.secret import guarded

Render = Callable[[Any, Mapping[str, Any], str, Any], Any]
"""Renders a part of an entry, given the entries before it, what to call it and the lines it stands in.

The secrets it uses it has to reveal itself.
"""

RENEW_AT = 0.8
"""The part of its lifetime after which an entry is renewed."""
_log = logging.getLogger(__name__)


def as_written(value: Any, keychain: Mapping[str, Any], where: str, origins: Any) -> Any:
    """Render nothing."""
    return value


class Keychain:
    """Resolves entries for executions and keeps what it fetched."""

    def __init__(
        self,
        rows: KeychainRows,
        fetcher: Fetcher,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        evaluating: Evaluating | None = None,
    ) -> None:
        self._evaluating = evaluating or Evaluating()
        self._rows = rows
        self._fetcher = fetcher
        self._now = now
        self._attempts: dict[tuple[Scope, str, str], asyncio.Task[Held]] = {}

    async def resolve(
        self, use: KeychainUse, entries: Iterable[KeychainEntry], render: Render = as_written
    ) -> dict[str, dict[str, Any]]:
        """Resolve a playbook's entries in order; each may use those before it."""
        found: dict[str, dict[str, Any]] = {}
        for entry in entries:
            made = await self._evaluating.run(use.scope, partial(rendered, entry, render, found))
            known = found.get(str(made.auth)) if made.kind == "token" else None
            found[entry.name] = await self.get(use, made) if known is None else _token_of(made, known)
        return found

    async def get(self, use: KeychainUse, entry: KeychainEntry) -> dict[str, Any]:
        """Return the fields of a rendered entry, as kept or fetched; renewed in time if it renews itself."""
        if entry.kind not in REMOTE:
            fetched = await self._fetcher.fetch(use.scope, entry, {})
            return _mapped(entry, guarded(fetched.fields, fetched.shown))
        held = await self._held(use, entry)
        fields = guarded(held.fields, frozenset(held.shown))
        # The map of a secret manager names secrets, and was used to fetch them.
        return dict(fields) if entry.kind == "secret_manager" else _mapped(entry, fields)

    async def renew_due(self, scope: Scope) -> int:
        """Renew what renews itself and is due, and return how many were; one that fails does not stop the others."""
        renewed = 0
        for use, entry in await self._rows.due(scope, self._now()):
            try:
                await self.get(use, entry)
                renewed += 1
            except NoetlError as problem:
                _log.warning("keychain entry %r was not renewed: %s", entry.name, problem.message)
        return renewed

    async def list(self, scope: Scope) -> Sequence[KeychainInfo]:
        """Return what may be shown of the kept entries."""
        return await self._rows.list(scope)

    async def forget(self, use: KeychainUse, entry: KeychainEntry) -> bool:
        """Remove a kept entry, so that it is fetched anew, and say whether there was one."""
        return await self._rows.delete(use.scope, cache_key_of(use, entry))

    async def forget_old(self, scope: Scope, grace: timedelta = timedelta(days=1)) -> int:
        """Remove what expired longer ago than the grace time, and what was kept for executions that have ended."""
        return await self._rows.delete_old(scope, self._now() - grace)

    async def _held(self, use: KeychainUse, entry: KeychainEntry) -> Held:
        definition = _definition(entry)
        held = await self._rows.read(use.scope, cache_key_of(use, entry))
        if held is not None and self._is_fresh(held, entry, definition):
            return held
        # Askers of this process share one attempt and its end, so that they neither take a connection each nor wait for
        # one failure after the other. It outlives the asker that began it.
        key = (use.scope, cache_key_of(use, entry), definition)
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = asyncio.create_task(self._attempt(use, entry, definition, held))
            attempt.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(attempt)

    def _ended(self, key: tuple[Scope, str, str], attempt: asyncio.Task[Held]) -> None:
        del self._attempts[key]
        # Asked for, so that a failure nobody waits for any more is not reported as forgotten.
        _ = attempt.cancelled() or attempt.exception()

    async def _attempt(self, use: KeychainUse, entry: KeychainEntry, definition: str, held: Held | None) -> Held:
        cache_key = cache_key_of(use, entry)
        usable = self._usable(held, definition)
        async with self._rows.alone(use.scope, cache_key, wait=usable is None) as alone:
            if not alone:
                assert usable is not None
                return usable
            held = await self._rows.read(use.scope, cache_key)
            if held is not None and self._is_fresh(held, entry, definition):
                return held
            return await self._renewed(use, entry, definition, held)

    async def _renewed(self, use: KeychainUse, entry: KeychainEntry, definition: str, held: Held | None) -> Held:
        before = held.fields if held is not None and held.definition == definition else {}
        try:
            fetched = await self._fetcher.fetch(use.scope, entry, before)
        except NoetlError as problem:
            usable = self._usable(held, definition)
            if usable is None:
                raise
            _log.warning("keychain entry %r was not renewed and is still used: %s", entry.name, problem.message)
            return usable
        fresh = self._kept(entry, definition, fetched)
        await self._rows.write(use, entry, fresh)
        return fresh

    def _kept(self, entry: KeychainEntry, definition: str, fetched: Fetched) -> Held:
        now = self._now()
        part = RENEW_AT if entry.auto_renew else 1.0
        return Held(
            definition,
            fetched.fields,
            sorted(fetched.shown),
            renew_at=now + timedelta(seconds=fetched.seconds * part),
            expires_at=now + timedelta(seconds=fetched.seconds),
        )

    def _is_fresh(self, held: Held, entry: KeychainEntry, definition: str) -> bool:
        return held.definition == definition and self._now() < (held.renew_at if entry.auto_renew else held.expires_at)

    def _usable(self, held: Held | None, definition: str) -> Held | None:
        usable = held is not None and held.definition == definition and self._now() < held.expires_at
        return held if usable else None


def _token_of(entry: KeychainEntry, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token of an earlier entry, for one that names it in place of a credential."""
    token = known.get("token") or known.get("access_token")
    if not token:
        raise NotFound(f"keychain entry {entry.name!r}: the entry {entry.auth!r} has no token")
    return {"token": token, "access_token": token}


def rendered(entry: KeychainEntry, render: Render, keychain: Mapping[str, Any]) -> KeychainEntry:
    """Return an entry with its templates rendered; where they stood is of no use any more."""
    where, origins = f"keychain entry {entry.name}", entry.origins
    return msgspec.structs.replace(
        entry,
        auth=render(entry.auth, keychain, f"{where}, field auth", origins_at(origins, "auth")),
        options=render(entry.options, keychain, where, origins),
        origins=None,
    )


def _definition(entry: KeychainEntry) -> str:
    """Return the digest of what decides about an entry's content; an entry written anew is not answered from the old one."""
    return digest_of([entry.kind, entry.auth, entry.ttl, entry.options])


def _mapped(entry: KeychainEntry, fields: Mapping[str, Any]) -> dict[str, Any]:
    wanted = entry.options.get("map")
    if not wanted:
        return dict(fields)
    return {out: _at(entry, fields, str(path)) for out, path in wanted.items()}


def _at(entry: KeychainEntry, fields: Mapping[str, Any], path: str) -> Any:
    value: Any = fields
    for step in path.removeprefix("$").strip(".").split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, TypeError, ValueError):
            raise NotFound(f"keychain entry {entry.name!r} has no field {path!r} for its map") from None
    return value
