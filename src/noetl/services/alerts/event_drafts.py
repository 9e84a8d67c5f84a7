"""Events about alerts and deliveries as appends, each under the execution it belongs to. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from noetl.engine.dispatch.drafts import Drafting
from noetl.kernel.ledger.transition import Append
from noetl.language.alert.rule import Route
from noetl.model.event import Draft, time_text
from noetl.model.ids import ROOT_ID_LIMIT, organization_root_id, snowflake_at, uuid5_of
from noetl.model.stream import Scope
from noetl.services.alerts.findings import (
    MESSAGE_CHARACTERS,
    SUBJECT_CHARACTERS,
    TITLE_CHARACTERS,
    AlertRow,
    Found,
    Rules,
    cut,
)

MAX_ATTEMPTS: Final = 12


class AlertWriting:
    """Makes the appends of one process."""

    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting

    def raised(
        self,
        scope: Scope,
        rules: Rules,
        found: Found,
        known: AlertRow | None,
        *,
        evaluation: str,
        part: str = "",
        seen_event_id: int = 0,
        execution_id: int | None = None,
    ) -> tuple[Append, dict[str, Any]]:
        """Say that a condition holds; return the append and the message for channels."""
        alert_id = rules.alert_id(found)
        stream = scope.stream(f"alert/{alert_id}")
        meta: dict[str, Any] = {
            "alert_id": alert_id,
            "alert_key": cut(rules.key(found), SUBJECT_CHARACTERS),
            "owner": rules.owner,
            "rule": rules.rule,
            "severity": found.severity,
            "subject": cut(found.subject, SUBJECT_CHARACTERS),
            "evaluation": evaluation,
            "part": part,
            "seen_event_id": str(seen_event_id),
            "about": None if found.about is None else str(found.about),
        }
        words = {"title": cut(found.title, TITLE_CHARACTERS), "message": cut(found.message, MESSAGE_CHARACTERS)}
        home = home_of(scope, execution_id if found.about is None else found.about)
        draft = self._drafting.one(scope, stream, home, "alert.raised", stream.stream_id, meta=meta, context=words)
        document = {
            **{name: meta[name] for name in ("alert_id", "alert_key", "rule", "severity", "subject")},
            **words,
            "execution_id": meta["about"],
            "state": "raised",
            "occurrence": 1 if known is None else known.occurrences + 1,
            "event_id": str(draft.event_id),
            "at": time_text(draft.event_time),
        }
        return Append(stream, [draft], 0 if known is None else known.version), document

    def resolved(
        self, scope: Scope, row: AlertRow, reason: str, *, evaluation: str, seen_event_id: int = 0
    ) -> tuple[Append, dict[str, Any]]:
        """Say that a condition no longer holds; return the append and the message for channels."""
        stream = scope.stream(f"alert/{row.alert_id}")
        meta = {
            "alert_id": row.alert_id,
            "evaluation": evaluation,
            "reason": reason,
            "seen_event_id": str(seen_event_id),
        }
        draft = self._drafting.one(
            scope, stream, home_of(scope, row.execution_id), "alert.resolved", stream.stream_id, meta=meta
        )
        document = {
            **{name: getattr(row, name) for name in ("alert_id", "alert_key", "rule", "severity", "subject", "title")},
            "message": reason,
            "execution_id": None if row.about_execution_id is None else str(row.about_execution_id),
            "state": "resolved",
            "occurrence": row.occurrences,
            "event_id": str(row.raised_event_id),
            "at": time_text(draft.event_time),
        }
        return Append(stream, [draft], row.version), document

    def deliveries(
        self,
        scope: Scope,
        document: Mapping[str, Any],
        route: Route,
        kinds: Mapping[str, str],
        *,
        execution_id: int | None,
        expires_seconds: float | None = None,
    ) -> Sequence[Append]:
        """Make a message for each channel of a route that is to be told; `kinds` tells what each channel is."""
        if not route.takes(document["severity"]) or (document["state"] == "resolved" and not route.send_resolved):
            return ()
        return [
            self.delivery(
                scope, document, channel, kinds.get(channel, "unknown"), execution_id=execution_id,
                expires_seconds=expires_seconds,
            )
            for channel in dict.fromkeys(route.channels)
        ]  # fmt: skip

    def delivery(
        self,
        scope: Scope,
        document: Mapping[str, Any],
        channel: str,
        kind: str,
        *,
        execution_id: int | None,
        expires_seconds: float | None = None,
    ) -> Append:
        """Make the message of an alert to one channel; made again, it is the same one."""
        delivery_id = delivery_id_of(scope, document, channel)
        stream = scope.stream(f"delivery/{delivery_id}")
        meta = {
            "delivery_id": delivery_id,
            "alert_id": document["alert_id"],
            "channel": channel,
            "channel_kind": kind,
            "severity": document["severity"],
            "occasion": document["state"],
            "max_attempts": MAX_ATTEMPTS,
            "expires_seconds": expires_seconds,
        }
        draft = self._drafting.one(
            scope, stream, home_of(scope, execution_id), "delivery.created", stream.stream_id, meta=meta,
            context={"document": dict(document)},
        )  # fmt: skip
        return Append(stream, [draft], 0)

    def of_delivery(
        self, scope: Scope, delivery_id: str, execution_id: int, event_type: str, meta: dict[str, Any], **fields: object
    ) -> Draft:
        """Say one more thing about a message."""
        stream = scope.stream(f"delivery/{delivery_id}")
        return self._drafting.one(
            scope, stream, home_of(scope, execution_id), event_type, stream.stream_id, meta=meta, **fields
        )


def delivery_id_of(scope: Scope, document: Mapping[str, Any], channel: str) -> str:
    """Return the id of a message, which receivers get as its idempotency key: no two organizations share one."""
    own = (scope.tenant_id, scope.organization_id, document["event_id"], document["state"], channel)
    return str(uuid5_of("delivery", *own))


_AGE: Final = timedelta(days=7)


def home_of(scope: Scope, execution_id: int | None) -> int:
    """Return the run itself if it is young, else the organization's own id.

    The month of an old run may be archived and dropped, and must not come back with an event that ends nothing.
    """
    if execution_id is not None and (
        execution_id < ROOT_ID_LIMIT or execution_id >= snowflake_at(datetime.now(UTC) - _AGE)
    ):
        return execution_id
    return organization_root_id(scope.tenant_id, scope.organization_id)
