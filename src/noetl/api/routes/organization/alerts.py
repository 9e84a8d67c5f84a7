"""Alerts: what rules found, the rules and channels themselves, and the messages about what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta

from noetl.api.endpoint import ADMINS, READERS, WRITERS, Call, Routes
from noetl.api.wire import NO_NUL, Body, Id, Name, View
from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import NotFound
from noetl.model.catalogue.alerts import Severity
from noetl.model.ids import parse_id
from noetl.services.alerts.alerts import Alerts, connect_alerts
from noetl.services.alerts.applied_rules import RulesView
from noetl.services.alerts.deliveries import DeliveryStatus, DeliveryView
from noetl.services.alerts.findings import AlertView

routes = Routes("alerts")


_Limit = Annotated[int, Meta(ge=1, le=1_000)]


class AlertsQuery(Body, frozen=True, kw_only=True):
    """Which alerts to list."""

    status: Literal["open", "resolved"] | None = None
    rule: Name | None = None
    severity: Severity | None = None
    limit: _Limit = 50
    cursor: Id | None = None


class DeliveriesQuery(Body, frozen=True, kw_only=True):
    """Which messages to list."""

    status: DeliveryStatus | None = None
    limit: _Limit = 50
    cursor: Id | None = None


class RulesRequest(Body, frozen=True, kw_only=True):
    """A file of alerts to put into use."""

    text: Annotated[str, Meta(max_length=1_000_000, pattern=NO_NUL)]


class RulesAnswer(View, frozen=True, kw_only=True):
    """What is in use now under a name, and whether that is new."""

    name: str
    changed: bool
    rules: int
    channels: int


class RulesList(View, frozen=True, kw_only=True):
    """Everything that is in use, by name."""

    applied: Sequence[RulesView]


class DeliveryPage(View, frozen=True, kw_only=True):
    """Messages, the newest first."""

    deliveries: Sequence[DeliveryView]
    next_cursor: str | None


class AlertPage(View, frozen=True, kw_only=True):
    """Alerts, those raised last first."""

    alerts: Sequence[AlertView]
    next_cursor: str | None


class ToldAlert(View, frozen=True, kw_only=True):
    """An alert with the messages about it."""

    alert: AlertView
    deliveries: Sequence[DeliveryView]


@routes.get("/api/alerts", READERS)
async def list_alerts(call: Call, query: AlertsQuery) -> AlertPage:
    """List alerts, those raised last first."""
    before = None if query.cursor is None else parse_id(query.cursor)
    rows = await _alerts(call).reading.listed(
        call.scope, status=query.status, rule=query.rule, severity=query.severity, before=before, limit=query.limit
    )
    last = str(rows[-1].raised_event_id) if len(rows) == query.limit else None
    return AlertPage(alerts=rows, next_cursor=last)


@routes.get("/api/alerts/rules", READERS)
async def list_alert_rules(call: Call) -> RulesList:
    """List the rules and channels that are in use; channels name their credentials and never show them."""
    return RulesList(applied=await _alerts(call).applied.listed(call.scope))


@routes.post("/api/alerts/rules", ADMINS, repeatable=True)
async def apply_alert_rules(call: Call, body: RulesRequest) -> RulesAnswer:
    """Put the rules and channels of a file into use, in place of those of the same name."""
    document, changed = await _alerts(call).applied.apply(call.scope, body.text)
    return RulesAnswer(name=document.name, changed=changed, rules=len(document.rules), channels=len(document.channels))


@routes.delete("/api/alerts/rules/{name}", ADMINS, status=204)
async def remove_alert_rules(call: Call, name: str) -> None:
    """Take rules and channels out of use; their open alerts are resolved with the next evaluation."""
    await _alerts(call).applied.remove(call.scope, name)


@routes.get("/api/alerts/deliveries", READERS)
async def list_deliveries(call: Call, query: DeliveriesQuery) -> DeliveryPage:
    """List messages about alerts, the newest first."""
    before = None if query.cursor is None else parse_id(query.cursor)
    rows = await _alerts(call).deliveries.listed(call.scope, status=query.status, before=before, limit=query.limit)
    last = str(rows[-1].created_event_id) if len(rows) == query.limit else None
    return DeliveryPage(deliveries=rows, next_cursor=last)


@routes.get("/api/alerts/deliveries/{delivery_id}", READERS)
async def get_delivery(call: Call, delivery_id: str) -> DeliveryView:
    """Return one message."""
    return await _alerts(call).deliveries.show(call.scope, _id(delivery_id, "delivery"))


@routes.post("/api/alerts/deliveries/{delivery_id}/retry", WRITERS)
async def retry_delivery(call: Call, delivery_id: str) -> DeliveryView:
    """Have a message sent after all that was given up."""
    chosen = _id(delivery_id, "delivery")
    return await _alerts(call).deliveries.rearm(call.scope, chosen, by=call.caller.name)


@routes.post("/api/alerts/channels/{name}/test", WRITERS, status=202)
async def try_channel(call: Call, name: str) -> DeliveryView:
    """Make a test message for a channel; look at the message to see whether it was taken."""
    own = _alerts(call)
    delivery_id = await own.trying.make(call.scope, name)
    return await own.deliveries.show(call.scope, delivery_id)


@routes.get("/api/alerts/{alert_id}", READERS)
async def get_alert(call: Call, alert_id: str) -> ToldAlert:
    """Return an alert and the messages about it."""
    own = _alerts(call)
    row = await own.reading.show(call.scope, _id(alert_id, "alert"))
    told = await own.deliveries.listed(call.scope, alert_id=row.alert_id, limit=1_000)
    return ToldAlert(alert=row, deliveries=told)


def _alerts(call: Call) -> Alerts:
    services = call.services
    drafting = Drafting(services.mint_several, services.producer)
    return connect_alerts(
        services.database, services.ledger, drafting, services.mint, services.catalog.plans.evaluating
    )


def _id(text: str, what: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise NotFound(f"there is no {what} {text[:80]!r}") from None
