"""The views of an installation by name: the built-in ones and those that the settings name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from noetl.errors import ConfigError, NotFound
from noetl.services.curated.facts import EXECUTIONS, FAILURES, WORK
from noetl.services.curated.rules import Bucket, Drop, Hash, Keep, Period, Size, Total
from noetl.services.curated.view import CuratedView


class CuratedViews:
    """All views, each under a name of its own."""

    def __init__(self, own: Iterable[CuratedView] = ()) -> None:
        self._views: dict[str, CuratedView] = {}
        for view in (*BUILT_IN, *own):
            if not isinstance(view, CuratedView):
                raise ConfigError(
                    f"{view!r} is no CuratedView", hint="make it with noetl.services.curated.view.CuratedView"
                )
            if view.name in self._views:
                raise ConfigError(f"there are two curated views of the name {view.name}")
            self._views[view.name] = view

    def __iter__(self) -> Iterator[CuratedView]:
        return iter(self._views.values())

    def get(self, name: str) -> CuratedView:
        """Return a view by name."""
        found = self._views.get(name)
        if found is None:
            raise NotFound(f"there is no curated view {name!r}", hint=f"there are {', '.join(sorted(self._views))}")
        return found


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
