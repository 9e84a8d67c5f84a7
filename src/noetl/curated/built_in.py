"""The views that every installation has."""

from __future__ import annotations

from typing import Final

from noetl.curated.facts import EXECUTIONS, FAILURES, WORK
from noetl.curated.rules import Bucket, Drop, Hash, Keep, Period, Size, Total
from noetl.curated.view import CuratedView

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND

EXECUTIONS_BY_DAY: Final = CuratedView(
    name="executions_by_day",
    sentence="Executions that ended, by day and outcome.",
    fact=EXECUTIONS,
    rules={"ended_at": Period("day"), "outcome": Keep(), "milliseconds": Drop(), "playbook": Drop()},
    count="executions",
)
DURATIONS: Final = CuratedView(
    name="durations",
    sentence="How long executions took, in milliseconds, by outcome.",
    fact=EXECUTIONS,
    rules={
        "milliseconds": Bucket((100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, 60 * _MINUTE)),
        "outcome": Keep(),
        "ended_at": Drop(),
        "playbook": Drop(),
    },
    count="executions",
)
FAILURES_BY_KIND: Final = CuratedView(
    name="failures_by_kind",
    sentence="What failed, by week and kind of problem.",
    fact=FAILURES,
    rules={"at": Period("week"), "what": Keep(), "problem": Keep(), "step": Drop(), "message": Drop()},
    count="failures",
)
FAILURES_IN_COMMON: Final = CuratedView(
    name="failures_in_common",
    sentence="Failures with the same message in many organizations; the message is a keyed hash.",
    fact=FAILURES,
    rules={"problem": Keep(), "message": Hash(), "at": Drop(), "what": Drop(), "step": Drop()},
    count="failures",
)
WORK_BY_SIZE: Final = CuratedView(
    name="work_by_size",
    sentence="Organizations by the rows they worked off in a month, and the bytes that came of it.",
    fact=WORK,
    rules={
        "at": Period("month"),
        "rows": Size((1_000, 100_000, 10_000_000, 1_000_000_000)),
        "bytes": Total(),
        "what": Drop(),
        "step": Drop(),
    },
    count="commits",
    days=92,
)

BUILT_IN: Final = (EXECUTIONS_BY_DAY, DURATIONS, FAILURES_BY_KIND, FAILURES_IN_COMMON, WORK_BY_SIZE)
