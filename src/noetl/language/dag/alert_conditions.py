"""What a condition over the ledger may say: its fields as tables, and which belong together.

The rules of alerts and the config of `alert_evaluate` share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noetl.language.dag.grammar_parts import DURATION
from noetl.language.grammar.problems import Problems
from noetl.language.grammar.shapes import FLAG, TEXT, Choice, Field, ListOf, Text
from noetl.language.grammar.tree import Node
from noetl.model.catalogue.alerts import SEVERITIES

LAGGING: Final = ("projection", "outbox", "tasks", "source")
CHANNEL_NAME: Final = Text(r"[a-z][a-z0-9_-]{0,62}", "up to 63 small letters, digits, dashes and underscores")
SEVERITY: Final = Choice(SEVERITIES)

CONDITION: Final[Mapping[str, Field]] = {
    "on": Field(
        Choice(("run_failed", "run_late", "slot_missed", "lag", "check_failed", "stream_broken", "platform_away")),
        "What is looked for in the ledger.",
    ),
    "path": Field(TEXT, "Only runs of this playbook; `etl/*` takes all whose path begins so."),
    "dag": Field(TEXT, "Only runs, tasks or checks of this DAG."),
    "job": Field(TEXT, "Only checks of this job."),
    "schedule": Field(TEXT, "Only slots of this schedule."),
    "later_than": Field(
        DURATION, "How long a run may be open, how late a slot may start, or how long work may wait for the platform."
    ),
    "finished_by": Field(
        Text(r"([01][0-9]|2[0-3]):[0-5][0-9]", "a time of day such as 06:30"),
        "When each day's run must have completed.",
    ),
    "timezone": Field(TEXT, "The zone of finished_by, such as Europe/Vienna; UTC if left out."),
    "of": Field(Choice(LAGGING), "What may lag; everything if left out."),
    "lag_over": Field(DURATION, "How far behind it may be."),
    "lookback": Field(DURATION, "How far back is looked; 24h if left out."),
}
ROUTE: Final[Mapping[str, Field]] = {
    "channels": Field(ListOf(CHANNEL_NAME, 1), "The channels that are told."),
    "min_severity": Field(SEVERITY, "The least severity that is told; info if left out."),
    "max_delivery_age": Field(DURATION, "How old an alert may be and still be sent; any age if left out."),
    "send_resolved": Field(FLAG, "Whether the channels are told when it is over, too."),
}
"""Where alerts go."""

_BELONGS: Final[Mapping[str, tuple[str, ...]]] = {
    "run_failed": ("path", "dag", "lookback"),
    "run_late": ("path", "dag", "later_than", "finished_by", "timezone"),
    "slot_missed": ("schedule", "later_than", "lookback"),
    "lag": ("of", "lag_over"),
    "check_failed": ("dag", "job", "lookback"),
    "stream_broken": (),
    "platform_away": ("later_than",),
}
_EITHER: Final[Mapping[str, tuple[str, ...]]] = {"run_late": ("later_than", "finished_by"), "lag": ("lag_over",)}


def hold_condition(node: Node, name: str, problems: Problems) -> None:
    """Note which fields of a condition do not belong together; `name` is what people call it."""
    kind = None if (on := node.get("on")) is None else on.text
    if kind is None or kind not in _BELONGS:
        return
    for key in node.mapping:
        if key in CONDITION and key != "on" and key not in _BELONGS[kind]:
            hint = f"it has {', '.join(_BELONGS[kind]) or 'no fields of its own'}"
            problems.error("misplaced_field", f"{key} means nothing to {kind}", node.key_place(key), hint)
    wanted = _EITHER.get(kind, ())
    given = [key for key in wanted if key in node.mapping]
    if wanted and not given:
        said = f"{name} on {kind} needs {' or '.join(wanted)}"
        problems.error("missing_field", said, node.place, f"write {wanted[0]}: 2h")
    for key in given[1:]:
        said = f"{name} has both {given[0]} and {key}"
        problems.error("given_twice", said, node.key_place(key), "leave one of them out")
    _times(node, name, problems)


def _times(node: Node, name: str, problems: Problems) -> None:
    by, zone = node.get("finished_by"), node.get("timezone")
    if by is not None and node.get("path") is None and node.get("dag") is None:
        said = f"{name} has finished_by and does not say which runs are meant"
        problems.error("missing_field", said, by.place, "write path: … or dag: …")
    if zone is not None and by is None:
        problems.error("misplaced_field", "timezone is for finished_by", node.key_place("timezone"), "remove it")
    if zone is not None and zone.text is not None:
        try:
            ZoneInfo(zone.text)
        except (ZoneInfoNotFoundError, ValueError):
            problems.error("wrong_value", "timezone must be a zone such as Europe/Vienna", zone.place)
