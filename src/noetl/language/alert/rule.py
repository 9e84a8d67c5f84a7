"""Rules, conditions and channels as values: what was written goes in, with every time in seconds. Reads nothing."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.language.dag.times import seconds_of
from noetl.model.catalogue.alerts import SEVERITIES, Severity

On = Literal["run_failed", "run_late", "slot_missed", "lag", "check_failed", "stream_broken", "platform_away"]
LOOKBACK_SECONDS = 86_400.0
_TIMES = ("later_than", "lag_over", "lookback", "max_delivery_age")


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is looked for in the ledger."""

    on: On
    path: str | None = None
    dag: str | None = None
    job: str | None = None
    schedule: str | None = None
    later_than: float | None = None
    finished_by: str | None = None
    timezone: str = "UTC"
    of: Literal["projection", "outbox", "tasks", "source"] | None = None
    lag_over: float | None = None
    lookback: float = LOOKBACK_SECONDS


class Route(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where alerts go."""

    channels: tuple[str, ...] = ()
    min_severity: Severity = "info"
    max_delivery_age: float | None = None
    send_resolved: bool = False

    def takes(self, severity: str) -> bool:
        """Tell whether an alert of this severity is told."""
        return rank(severity) >= rank(self.min_severity)


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule that people applied."""

    name: str
    condition: Condition
    route: Route = Route()
    severity: Severity = "error"
    title: str | None = None


def rank(severity: str) -> int:
    """Return the place of a severity, the worst last."""
    return SEVERITIES.index(severity)


def condition_of(written: dict[str, Any]) -> Condition:
    """Read a condition as it was written; other fields beside it are passed over."""
    return msgspec.convert(_in_seconds(written), Condition)


def route_of(written: dict[str, Any]) -> Route:
    """Read where alerts go, as it was written."""
    return msgspec.convert(_in_seconds(written), Route)


def rule_of(written: dict[str, Any]) -> Rule:
    """Read a rule as it was written in a file of rules."""
    return Rule(
        name=written["name"],
        condition=condition_of(written),
        route=route_of(written),
        severity=written.get("severity", "error"),
        title=written.get("title"),
    )


def _in_seconds(written: dict[str, Any]) -> dict[str, Any]:
    return {
        key: seconds_of(value) if key in _TIMES and isinstance(value, str) else value for key, value in written.items()
    }
