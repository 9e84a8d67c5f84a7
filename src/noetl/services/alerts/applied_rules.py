"""The rules and channels of organizations: files of alerts go in, one event each; what is in use comes out of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import Conflict, InputError, NotFound
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.language.alert.document import AlertsDocument, parse_alerts
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope

_ALL: Final = "SELECT name, rules, channels, digest, applied_at, version FROM noetl.alert_rules ORDER BY name"


class RulesView(msgspec.Struct, frozen=True, kw_only=True):
    """A file of alerts that is in use."""

    name: str
    digest: str
    applied_at: datetime
    rules: list[dict[str, Any]]
    channels: dict[str, dict[str, Any]]


class Applied(RulesView, frozen=True, kw_only=True):
    """A file of alerts that is in use, and the version of its stream."""

    version: int

    @property
    def document(self) -> AlertsDocument:
        """What it says."""
        return AlertsDocument(name=self.name, rules=self.rules, channels=self.channels)


class AppliedRules:
    """What organizations want to be told about, each seen only within its own."""

    def __init__(self, database: Database, ledger: Ledger, drafting: Drafting, aside: Evaluating) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = drafting
        self._aside = aside

    async def listed(self, scope: Scope) -> list[Applied]:
        """Return everything that is in use, by name."""
        async with self._database.transaction(scope) as connection:
            return await read_applied(connection)

    async def channels(self, scope: Scope) -> dict[str, dict[str, Any]]:
        """Return the channels of all files by name."""
        return channels_of(await self.listed(scope))

    async def apply(self, scope: Scope, text: str, *, file: str | None = None) -> tuple[AlertsDocument, bool]:
        """Put a file of alerts into use in place of the one of its name; tell whether that changed anything."""
        standing = await self.listed(scope)
        # Channels of the file that is replaced do not count, so it is read twice: first for its name alone.
        document = await self._aside.beside(
            scope, lambda: parse_alerts(text, file=file, known_channels=channels_of(standing))
        )
        others = [one for one in standing if one.name != document.name]
        document = await self._aside.beside(
            scope, lambda: parse_alerts(text, file=file, known_channels=channels_of(others))
        )
        for one in others:
            if twice := sorted(one.channels.keys() & document.channels.keys()):
                raise InputError(
                    f"the channel {twice[0]} is declared by {one.name} already",
                    hint="give it another name, or leave it out here and use that one",
                )
        known = next((one for one in standing if one.name == document.name), None)
        if known is not None and known.digest == document.digest:
            return document, False
        meta = {"name": document.name, "digest": document.digest}
        context = {"rules": document.rules, "channels": document.channels}
        await self._record(scope, document.name, "alert.rules_applied", meta, context)
        return document, True

    async def remove(self, scope: Scope, name: str) -> None:
        """Take a file of alerts out of use; its open alerts are resolved with the next evaluation."""
        if all(one.name != name for one in await self.listed(scope)):
            raise NotFound(f"no rules are applied under the name {name}", hint="`noetl alerts rules` lists them")
        await self._record(scope, name, "alert.rules_removed", {"name": name}, {})

    async def _record(
        self, scope: Scope, name: str, event_type: str, meta: dict[str, Any], context: dict[str, Any]
    ) -> None:
        stream = scope.stream(f"alert-rules/{name}")
        async with self._database.transaction(scope) as connection:
            version = await connection.fetchval(
                "SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id
            )
        root = organization_root_id(scope.tenant_id, scope.organization_id)
        draft = self._drafting.one(scope, stream, root, event_type, stream.stream_id, meta=meta, context=context)
        try:
            await self._ledger.transact(Transition((Append(stream, [draft], version or 0),)))
        except Conflict:
            raise Conflict(f"somebody else changed the rules {name} at the same time; look and try again") from None


async def read_applied(connection: Connection) -> list[Applied]:
    """Return the files of alerts that are in use, by name."""
    return [
        Applied(**{**row, "rules": orjson.loads(row["rules"]), "channels": orjson.loads(row["channels"])})
        for row in await connection.fetch(_ALL)
    ]


def channels_of(applied: list[Applied]) -> dict[str, dict[str, Any]]:
    """Return the channels of files by name."""
    return {name: declared for one in applied for name, declared in one.channels.items()}


def kinds_of(channels: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return what each channel is."""
    return {name: str(declared["kind"]) for name, declared in channels.items()}
