"""What an evaluation found, and the alert that stands for it. Values only."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from noetl.model.catalogue.alerts import Severity
from noetl.model.ids import Id64, uuid5_of

TITLE_CHARACTERS: Final = 300
MESSAGE_CHARACTERS: Final = 4_000
SUBJECT_CHARACTERS: Final = 500


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a condition holds for."""

    subject: str
    title: str
    severity: Severity = "error"
    message: str = ""
    period: str = ""
    """The time it is about, where a subject may be found anew in each."""
    about: int | None = None
    """The execution it is about."""
    once: bool = False
    """Whether it is told once for ever: it is not raised again after it was resolved."""


class Rules(msgspec.Struct, frozen=True):
    """Whose rule was evaluated: `owner` is a set of applied rules or a job, `rule` its name there."""

    owner: str
    rule: str

    def key(self, found: Found) -> str:
        """Return what names an alert for people."""
        return ":".join(filter(None, (self.owner, self.rule, found.subject, found.period)))

    def alert_id(self, found: Found) -> str:
        """Return the id of the alert, the same for all who find it."""
        return str(uuid5_of("alert", self.owner, self.rule, found.subject, found.period))


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """An alert."""

    alert_id: str
    alert_key: str
    owner: str
    rule: str
    subject: str
    severity: Severity
    title: str
    message: str
    status: Literal["open", "resolved"]
    occurrences: int
    about_execution_id: Id64 | None
    raised_event_id: Id64
    first_seen: datetime
    last_seen: datetime
    resolved_at: datetime | None
    resolution: str | None


class AlertRow(AlertView, frozen=True, kw_only=True):
    """An alert as its row has it, with what the next evaluation needs."""

    part: str
    evaluation: str
    seen_event_id: int
    execution_id: int
    version: int


COLUMNS: Final = ", ".join("alert_id::text" if name == "alert_id" else name for name in AlertRow.__struct_fields__)


def alert_row(row: Any) -> AlertRow:
    """Read a row of `COLUMNS`."""
    return AlertRow(**dict(row))


def cut(text: str, characters: int) -> str:
    """Return text that is not longer than this, with a sign where something is left out."""
    text = text.replace("\x00", "")
    return text if len(text) <= characters else text[: characters - 1] + "…"
