"""What the API shows of alerts, rules and messages, and what it is asked for."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from noetl.alerts.applied import Applied
from noetl.alerts.deliveries import DeliveryRow
from noetl.alerts.found import AlertRow
from noetl.api.wire import NO_NUL, Body, Id, Name, View
from noetl.model.catalogue.alerts import Severity

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

    status: Literal["Pending", "Sending", "Delivered", "Dead"] | None = None
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


class RulesView(View, frozen=True, kw_only=True):
    """A file of alerts that is in use."""

    name: str
    digest: str
    applied_at: datetime
    rules: list[dict[str, Any]]
    channels: dict[str, dict[str, Any]]


class RulesList(View, frozen=True, kw_only=True):
    """Everything that is in use, by name."""

    applied: list[RulesView]


class DeliveryView(View, frozen=True, kw_only=True):
    """A message about an alert; one that is `Dead` was given up."""

    delivery_id: str
    alert_id: str
    channel: str
    channel_kind: str
    severity: str
    occasion: str
    status: str
    attempt: int
    max_attempts: int
    available_at: datetime | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class DeliveryPage(View, frozen=True, kw_only=True):
    """Messages, the newest first."""

    deliveries: list[DeliveryView]
    next_cursor: str | None


class AlertView(View, frozen=True, kw_only=True):
    """An alert."""

    alert_id: str
    alert_key: str
    owner: str
    rule: str
    subject: str
    severity: str
    title: str
    message: str
    status: str
    occurrences: int
    about_execution_id: str | None
    raised_event_id: str
    first_seen: datetime
    last_seen: datetime
    resolved_at: datetime | None
    resolution: str | None


class AlertPage(View, frozen=True, kw_only=True):
    """Alerts, those raised last first."""

    alerts: list[AlertView]
    next_cursor: str | None


class ToldAlert(View, frozen=True, kw_only=True):
    """An alert with the messages about it."""

    alert: AlertView
    deliveries: list[DeliveryView]


def alert_view(row: AlertRow) -> AlertView:
    """Return what is shown of an alert."""
    fields = {name: getattr(row, name) for name in AlertView.__struct_fields__}
    about = row.about_execution_id
    ids = {"about_execution_id": None if about is None else str(about), "raised_event_id": str(row.raised_event_id)}
    return AlertView(**{**fields, **ids})


def delivery_view(row: DeliveryRow) -> DeliveryView:
    """Return what is shown of a message."""
    return DeliveryView(**{name: getattr(row, name) for name in DeliveryView.__struct_fields__})


def rules_view(applied: Applied) -> RulesView:
    """Return what is shown of a file of alerts."""
    return RulesView(
        name=applied.document.name,
        digest=applied.digest,
        applied_at=applied.applied_at,
        rules=applied.document.rules,
        channels=applied.document.channels,
    )
