"""Business objects: the user's own folds. A plain function goes in, a guarded fold comes out.

    @business_object("invoice", events=["business.invoice.posted"], key=lambda event: event.aggregate_id)
    def invoice(row, event):
        row = row or {"total": 0}
        row["total"] += event.meta["amount"]
        return row

The function must depend on its two arguments alone. It gets a copy of the row, so that a function that raises half-way
has changed nothing, and what it returns is checked to be plain JSON. All events of one object must stand in one shard: in
one stream outside executions, best named after the object, or in streams of one execution.

It gets every event whole, however large. Where fields of an event were erased on purpose, the row becomes `ERASED` and stays
so, since nobody can tell any more what it would be; a function given as `erased` may say otherwise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from noetl.errors import FoldFailed, InputError
from noetl.kernel.projections.folds.fold import Fold, Row, copied, parsed_row
from noetl.model.canonical import canonical_json
from noetl.model.catalogue import BY_NAME, event_type
from noetl.model.event import Event
from noetl.model.event_type import OPEN_PREFIX

PREFIX: Final = "business_object/"
LONGEST_ID: Final = 1024
"""Bytes of a row's id: with the names around it, it must fit into an index."""

ERASED: Final[Row] = {"erased": True}
"""What is left of an object when fields of one of its events were erased."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

FoldFunction = Callable[[Row | None, Event], Row | None]


def business_object(
    name: str,
    *,
    events: Iterable[str],
    key: Callable[[Event], str | None] = lambda event: event.aggregate_id,
    version: int = 1,
    ended: Callable[[Row], bool] = lambda row: False,
    erased: FoldFunction | None = None,
) -> Callable[[FoldFunction], Fold]:
    """Make a fold of the decorated function, which gets the row so far (None at first) and an event, and returns the row.

    Raise `version` whenever the function's results change: rows and snapshots of another version are never mixed.
    `erased` is called in the function's place for an event whose fields were erased, which lacks some of them.
    """
    types = frozenset(events)
    problems = [problem for kind in sorted(types) for problem in _type_problems(kind)]
    if not _NAME.fullmatch(name):
        problems.append("its name must have letters, digits, '.', '_' and '-' only (128 at most)")
    if not types:
        problems.append("it listens to no event types")
    if version < 1:
        problems.append(f"its version is {version} and must be at least 1")
    if problems:
        raise InputError(f"business object {name!r}: " + "; ".join(problems))

    def make(function: FoldFunction) -> Fold:
        projection = PREFIX + name
        return Fold(
            projection=projection,
            version=version,
            event_types=types,
            key=lambda event: _guarded_key(projection, key, event),
            apply=lambda row, event: _guarded_apply(projection, function, row, event),
            ended=lambda row: row == ERASED or _guarded_ended(projection, ended, row),
            erased=lambda row, event: (
                dict(ERASED) if erased is None else _guarded_apply(projection, erased, row, event)
            ),
        )

    return make


def fold_failed(projection: str, event: Event, why: str) -> FoldFailed:
    """Say which fold cannot take which event, and why."""
    return FoldFailed(
        f"fold {projection} cannot take event {event.event_id} ({event.event_type}) "
        f"at position {event.position} of shard {event.shard}: {why}",
        projection=projection,
        event_id=str(event.event_id),
        shard=event.shard,
        position=event.position,
    )


def _guarded_key(projection: str, key: Callable[[Event], str | None], event: Event) -> str | None:
    try:
        row_id: object = key(event)
    except Exception as problem:
        raise fold_failed(projection, event, f"its key raised {_shown(problem)}") from problem
    if row_id is None or (isinstance(row_id, str) and row_id and _can_be_stored(row_id)):
        return row_id
    raise fold_failed(
        projection,
        event,
        f"its key returned {_shortened(row_id)}, and a row's id is text of 1 to {LONGEST_ID} bytes without NUL, or None",
    )


def _can_be_stored(row_id: str) -> bool:
    try:
        return "\0" not in row_id and len(row_id.encode()) <= LONGEST_ID
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _guarded_apply(projection: str, function: FoldFunction, row: Row | None, event: Event) -> Row | None:
    try:
        changed: Any = function(copied(row), event)
    except Exception as problem:
        raise fold_failed(projection, event, f"it raised {_shown(problem)}") from problem
    if changed is None and row is None:
        return None
    if not isinstance(changed, dict):
        hint = "; return the row" if changed is None else ""
        raise fold_failed(projection, event, f"it returned {type(changed).__name__}, not a row{hint}")
    try:
        text = canonical_json(changed).decode()
    except (TypeError, ValueError) as problem:
        raise fold_failed(projection, event, f"the row it returned is not plain JSON: {problem}") from problem
    # As a store gives it back: where 2.0 is 2 and a tuple a list for the next event of a live projector, it must be so
    # in a replay too. And a row must share nothing with the event, which the next fold would change with the row.
    return parsed_row(text)


def _guarded_ended(projection: str, ended: Callable[[Row], bool], row: Row) -> bool:
    try:
        return bool(ended(row))
    except Exception as problem:
        raise FoldFailed(f"fold {projection}: ended() raised {_shown(problem)}", projection=projection) from problem


def _shortened(value: object) -> str:
    """Show a value of the user's, whatever its size."""
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _shown(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _type_problems(name: str) -> list[str]:
    if event_type(name) is not None:
        return []
    near = difflib.get_close_matches(name, BY_NAME, n=1)
    tip = f"did you mean {near[0]!r}?" if near else f"your own types start with {OPEN_PREFIX!r}"
    return [f"there is no event type {name!r}; {tip}"]
