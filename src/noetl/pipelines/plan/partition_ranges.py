"""Which partitions lie in a range: bounds and a step go in, values in their order come out. Pure.

Ranges are half-open. Times are UTC, so that every day has 24 hours and no hour comes twice; a value is spelled the way
the lower bound is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from noetl.errors import InputError
from noetl.model.dataset import partition_key, partition_values
from noetl.pipelines.plan.wanted_values import JobView

MOST: Final = 1_000_000
"""Partitions one backfill may have."""

_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ])\d{2}(:\d{2})?(:\d{2})?(Z)?")
_STEP: Final = re.compile(r"([1-9][0-9]{0,8})(d|h|m)?")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}

Kind = Literal["whole", "day", "time", "text"]


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions somebody asked for: a range of one column, values of others."""

    column: str
    start: str
    end: str
    step: str | None = None
    fixed: dict[str, str] = {}


def kind_of(text: str) -> Kind:
    """Tell what a bound is."""
    if _WHOLE.fullmatch(text):
        return "whole"
    if _DAY.fullmatch(text):
        return "day"
    return "time" if _TIME.fullmatch(text) else "text"


def grid(asked: Selection) -> list[str]:
    """Return every value of the range by its step; by day, hour or one unless given."""
    kind = _checked(asked)
    if kind == "text":
        raise InputError(
            f"{asked.start!r} is no number and no time, so nobody knows what comes after it",
            hint="write --from and --to as 2026-01-31, 2026-01-31T23 or 42",
        )
    if kind == "whole":
        start, end, by = int(asked.start), int(asked.end), _whole_step(asked.step)
        _bounded(-(-(end - start) // by))
        return [str(value) for value in range(start, end, by)]
    step = _time_step(asked.step, kind)
    first, last = _moment(asked.start), _moment(asked.end)
    count = -(-(last - first) // step)
    _bounded(count)
    if kind == "day" and not step.seconds:
        day, days = first.toordinal(), step.days
        return [date.fromordinal(day + number * days).isoformat() for number in range(count)]
    spelling = _spelling(asked.start, step)
    return [(first + number * step).strftime(spelling) for number in range(count)]


def inside(asked: Selection) -> Callable[[str], Any]:
    """Return what gives the place of a value in the range, or None if it is not in it."""
    kind = _checked(asked)
    place = _PLACES[kind]
    fits = _same_kind(kind)
    low, high = place(asked.start), place(asked.end)

    def placed(value: str) -> Any:
        if not fits(value):
            return None
        found = place(value)
        return found if low <= found < high else None

    return placed


def keys_of(asked: Selection, columns: Collection[str]) -> list[str]:
    """Return the partitions of the range, all of whose columns are known."""
    free = [name for name in columns if name != asked.column and name not in asked.fixed]
    if free:
        raise InputError(
            f"which {free[0]}? The dataset is partitioned by {', '.join(columns)}", hint=f"add --partition {free[0]}=…"
        )
    order = list(columns)
    return [partition_key(order, {**asked.fixed, asked.column: value}) for value in grid(asked)]


def chosen(asked: Selection, keys: Iterable[str]) -> list[str]:
    """Return those of the partitions that the range has, in its order."""
    placed = inside(asked)
    found = []
    for key in keys:
        values = partition_values(key)
        value = values.get(asked.column)
        place = None if value is None else placed(value)
        if place is not None and all(values.get(name) == wanted for name, wanted in asked.fixed.items()):
            found.append((place, key))
    _bounded(len(found))
    return [key for _, key in sorted(found)]


def candidates(job: JobView, parts: Mapping[str, Collection[str]]) -> set[str]:
    """Return the partitions of a job that its inputs, by alias, have something for."""
    order = list(job.partition_by)
    sides = [
        {partition_key(order, {**dict.fromkeys(order), **partition_values(key)}) for key in parts.get(one.alias, ())}
        for one in job.inputs
        if one.trigger and job.carried_by(one)
    ]
    if not sides:
        return set()
    return set.intersection(*sides) if job.wait == "all" else set.union(*sides)


def _checked(asked: Selection) -> Kind:
    kinds = {kind_of(asked.start), kind_of(asked.end)}
    if kinds == {"day", "time"}:
        kinds = {"time"}
    kind = kinds.pop() if len(kinds) == 1 else "text"
    try:
        nothing = _PLACES[kind](asked.start) >= _PLACES[kind](asked.end)
    except ValueError as problem:
        raise InputError(f"{asked.start} to {asked.end} is no range: {problem}") from None
    if nothing:
        raise InputError(f"there is nothing from {asked.start} to {asked.end}", hint="--to is not part of the range")
    return kind


def _same_kind(kind: Kind) -> Callable[[str], bool]:
    if kind == "text":
        return lambda value: True
    if kind == "whole":
        return lambda value: _WHOLE.fullmatch(value) is not None
    return lambda value: kind_of(value) in ("day", "time") and _is_moment(value)


def _is_moment(text: str) -> bool:
    try:
        _moment(text)
    except ValueError:
        return False
    return True


def _moment(text: str) -> datetime:
    # Only whole parts are left out at the end, which `fromisoformat` wants to see.
    plain = text.removesuffix("Z")
    return datetime.fromisoformat(plain if len(plain) != 13 else f"{plain}:00").replace(tzinfo=UTC)


_PLACES: Final[dict[Kind, Callable[[str], Any]]] = {"whole": int, "day": _moment, "time": _moment, "text": str}


def _spelling(start: str, step: timedelta) -> str:
    found = _TIME.fullmatch(start)
    if found is None:
        return "%Y-%m-%dT%H" if not step.seconds % 3600 else "%Y-%m-%dT%H:%M"
    between, minutes, seconds, zone = found.groups(default="")
    if step.seconds % 3600 and not minutes:
        minutes = ":00"
    return f"%Y-%m-%d{between}%H{':%M' if minutes else ''}{':%S' if seconds else ''}{zone}"


def _whole_step(text: str | None) -> int:
    found = _STEP.fullmatch(text or "1")
    if found is None or found[2]:
        raise InputError(f"{text!r} is no step between whole numbers", hint="write a number, such as 100")
    return int(found[1])


def _time_step(text: str | None, kind: Kind) -> timedelta:
    found = _STEP.fullmatch(text or ("1d" if kind == "day" else "1h"))
    if found is None or not found[2]:
        raise InputError(f"{text!r} is no step between times", hint="write it as 1d, 6h or 15m")
    return int(found[1]) * _UNITS[found[2]]


def _bounded(count: int) -> None:
    if count > MOST:
        raise InputError(
            f"the range has {count:,} partitions, and a backfill {MOST:,} at most", hint="take a part of it"
        )
