"""The event types of alerts and their deliveries. Joined to the others by `catalogue`.

Streams: `alert-rules/<name>` for the rules and channels people apply, `alert/<id>` for each alert, `delivery/<id>` for
each message to a channel.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType

Severity = Literal["info", "warning", "error", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "error", "critical")
"""From the least to the worst."""


class AlertRulesNamed(msgspec.Struct, frozen=True):
    """Which set of rules, and the digest of what it says."""

    name: str
    digest: str | None = None


class AlertRaised(msgspec.Struct, frozen=True):
    """Which rule found what, in which evaluation."""

    alert_id: str
    alert_key: str
    owner: str
    rule: str
    severity: Severity
    subject: str
    evaluation: str
    part: str = ""
    seen_event_id: str = "0"
    """The event that made the judged data known, if data were judged; what is judged from older data changes nothing."""
    about: str | None = None
    """The execution it is about, if it is about one."""


class AlertWords(msgspec.Struct, frozen=True):
    """What people are told."""

    title: str
    message: str = ""


class AlertResolved(msgspec.Struct, frozen=True):
    """Which evaluation found that the condition no longer holds, and why."""

    alert_id: str
    evaluation: str
    reason: str = ""
    seen_event_id: str = "0"


class DeliveryCreated(msgspec.Struct, frozen=True):
    """What goes to which channel."""

    delivery_id: str
    alert_id: str
    channel: str
    channel_kind: str
    severity: Severity
    occasion: Literal["raised", "resolved", "test"]
    max_attempts: int
    expires_seconds: int | float | None = None
    """After this time it is not sent any more."""


class DeliveryClaimed(msgspec.Struct, frozen=True):
    """Who sends, for the how-manieth time."""

    attempt: int
    worker: str
    lease_token: str
    lease_seconds: int | float


class DeliveryAttemptEnded(msgspec.Struct, frozen=True):
    """Which attempt came to nothing, and when the next may begin."""

    attempt: int
    channel_kind: str
    delay_seconds: int | float = 0
    error_kind: str | None = None


class DeliveryEnded(msgspec.Struct, frozen=True):
    """Which attempt was the last."""

    attempt: int
    channel_kind: str


class DeliveryRearmed(msgspec.Struct, frozen=True):
    """How many attempts were granted besides, and by whom."""

    extra_attempts: int
    by: str


ALERTS_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="alert.rules_applied",
        sentence="Rules and channels of alerts were set under a name.",
        aggregate="alert_rules",
        meta=AlertRulesNamed,
        opens=("alert_rules",),
        changes=("alert_rules",),
    ),
    EventType(
        name="alert.rules_removed",
        sentence="Rules and channels of alerts were taken out of use.",
        aggregate="alert_rules",
        meta=AlertRulesNamed,
        ends=("alert_rules",),
    ),
    EventType(
        name="alert.raised",
        sentence="The condition of a rule was found to hold, or to have become worse.",
        aggregate="alert",
        meta=AlertRaised,
        context=AlertWords,
        opens=("alert",),
        changes=("alert",),
    ),
    EventType(
        name="alert.resolved",
        sentence="The condition of an alert was found to hold no longer.",
        aggregate="alert",
        meta=AlertResolved,
        changes=("alert",),
    ),
    EventType(
        name="delivery.created",
        sentence="A message about an alert was made ready for a channel.",
        aggregate="delivery",
        meta=DeliveryCreated,
        opens=("delivery",),
    ),
    EventType(
        name="delivery.claimed",
        sentence="A sender took a lease on a message.",
        aggregate="delivery",
        meta=DeliveryClaimed,
        changes=("delivery",),
    ),
    EventType(
        name="delivery.attempt_failed",
        sentence="One attempt to send a message failed; another may follow.",
        aggregate="delivery",
        meta=DeliveryAttemptEnded,
        changes=("delivery",),
    ),
    EventType(
        name="delivery.delivered",
        sentence="The channel took a message.",
        aggregate="delivery",
        meta=DeliveryEnded,
        changes=("delivery",),
    ),
    EventType(
        name="delivery.failed",
        sentence="A message was given up; it is sent again only if somebody asks for it.",
        aggregate="delivery",
        meta=DeliveryEnded,
        changes=("delivery",),
    ),
    EventType(
        name="delivery.rearmed",
        sentence="Somebody asked to have a message sent that was given up.",
        aggregate="delivery",
        meta=DeliveryRearmed,
        changes=("delivery",),
    ),
)
"""In the order they are met."""
