"""The part of the whole story that is about alerts: every way their rows change, one after another."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Append, Transition
from noetl.testing.samples.executions import one, token
from noetl.testing.samples.pipelines import Piped, named


def some_alerts(dag: Piped) -> list[Transition]:
    """Rules that come, change and go; an alert that comes back; messages that arrive, die and are tried again."""
    held = [token() for _ in range(3)]
    return [
        _rules(dag, "alert.rules_applied", {"name": "ops", "digest": "d1"}, rules=[], channels={"hook": {"ü": 1e-7}}),
        _rules(dag, "alert.rules_applied", {"name": "ops", "digest": "d2"}, rules=[{"name": "late"}], channels={}),
        _rules(dag, "alert.rules_applied", {"name": "old", "digest": "d1"}, rules=[], channels={}),
        _rules(dag, "alert.rules_removed", {"name": "old"}),
        _raised(dag, "a", "warning"),
        _raised(dag, "a", "critical", about=str(dag.execution_id)),
        _alert(dag, "a", "alert.resolved", {"alert_id": named("a").upper(), "evaluation": "e2", "reason": "it ended"}),
        _raised(dag, "a", "error", part="day=1", seen_event_id="380623209486581760"),
        _raised(dag, "b", "info"),
        _alert(
            dag,
            "b",
            "alert.resolved",
            {"alert_id": named("b"), "evaluation": "e3", "seen_event_id": "380623209486581761"},
        ),
        _created(dag, "well", expires_seconds=0.1234565),
        _delivery(dag, "well", "delivery.claimed", _lease(1, held[0].upper())),
        _delivery(dag, "well", "delivery.attempt_failed", {"attempt": 1, "delay_seconds": 2.5}, error="refused"),
        _delivery(dag, "well", "delivery.claimed", _lease(2, held[1])),
        _delivery(dag, "well", "delivery.delivered", {"attempt": 2}),
        _created(dag, "badly"),
        _delivery(dag, "badly", "delivery.claimed", _lease(1, held[2])),
        _delivery(dag, "badly", "delivery.failed", {"attempt": 1}, error="no such channel"),
        _delivery(dag, "badly", "delivery.rearmed", {"extra_attempts": 12, "by": "ann"}),
    ]


def _rules(dag: Piped, kind: str, meta: dict[str, Any], **context: Any) -> Transition:
    return one(dag.event(f"alert-rules/{meta['name']}", kind, meta, node_name=None, context=context))


def _alert(dag: Piped, name: str, kind: str, meta: dict[str, Any], **fields: Any) -> Transition:
    return one(dag.event(f"alert/{named(name)}", kind, meta, node_name=None, **fields))


def _raised(dag: Piped, name: str, severity: str, **more: Any) -> Transition:
    meta = {
        "alert_id": named(name),
        "alert_key": f"rules/ops:late:{name}",
        "owner": "rules/ops",
        "rule": "late",
        "severity": severity,
        "subject": name,
        "evaluation": "e1",
        **more,
    }
    return _alert(dag, name, "alert.raised", meta, context={"title": f"{name} is late", "message": "ü"})


def _delivery(dag: Piped, name: str, kind: str, meta: dict[str, Any], **fields: Any) -> Transition:
    told = {"channel_kind": "webhook", **meta}
    return one(dag.event(f"delivery/{named(name)}", kind, told, node_name=None, **fields))


def _created(dag: Piped, name: str, **more: Any) -> Transition:
    meta = {
        "delivery_id": named(name),
        "alert_id": named("a"),
        "channel": "hook",
        "channel_kind": "webhook",
        "severity": "critical",
        "occasion": "raised",
        "max_attempts": 12,
        **more,
    }
    draft = dag.event(
        f"delivery/{named(name)}", "delivery.created", meta, node_name=None, context={"document": {"title": "ü"}}
    )
    return Transition((Append(draft.stream, [draft], 0),))


def _lease(attempt: int, held: str) -> dict[str, Any]:
    return {"attempt": attempt, "worker": "sender", "lease_token": held, "lease_seconds": 30.0}
