"""Why a job is built anew, in words: two definitions of a job and its files go in, sentences come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from noetl.language.dag.model import Input, Job

SETTINGS: Final = frozenset(
    {
        "activation",
        "reset_outputs",
        "max_concurrency",
        "timeout_seconds",
        "heartbeat_timeout_seconds",
        "max_attempts",
        "idle_timeout",
        "spark",
        "source",
    }
)
"""Fields that say how or when a job runs, not what it makes."""
_SHOWN: Final = 60
_BEFORE: Final = 20
"""So many letters are shown before the first one that differs."""


def differences(old: Job, new: Job, old_files: Mapping[str, str], new_files: Mapping[str, str]) -> list[str]:
    """Say what differs of what a job makes, the most telling first."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    found = [*_config(before.pop("config", {}), after.pop("config", {})), *_files(old_files, new_files)]
    found += _inputs(old, new)
    for name in sorted((before.keys() | after.keys()) - SETTINGS - {"inputs", "name"}):
        if before.get(name) != after.get(name):
            found.append(_field(name, getattr(old, name), getattr(new, name)))
    return found


def changed_settings(old: Job, new: Job) -> list[str]:
    """Name the fields that differ and do not matter for what is made."""
    return sorted(name for name in SETTINGS if getattr(old, name) != getattr(new, name))


def _config(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name == "sql" and isinstance(before, str) and isinstance(after, str):
            yield f"sql changed: {_first_other_line(before, after)}"
        else:
            # Other values are not shown: an operator may be told things that are long or nobody's business.
            how = "added" if name not in old else "removed" if name not in new else "changed"
            yield f"config.{name} {how}"


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            how = "added" if name not in old else "removed" if name not in new else "changed"
            yield f"file {name} {how}"


def _inputs(old: Job, new: Job) -> Iterator[str]:
    before = {one.alias: one for one in old.inputs}
    after = {one.alias: one for one in new.inputs}
    for alias in sorted(before.keys() | after.keys()):
        if alias not in before:
            yield f"reads {alias} now"
        elif alias not in after:
            yield f"reads {alias} no longer"
        elif before[alias] != after[alias]:
            yield f"input {alias} changed: {', '.join(_other_fields(before[alias], after[alias]))}"


def _other_fields(old: Input, new: Input) -> list[str]:
    names = {"source": "from"}
    return [names.get(name, name) for name in Input.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def _field(name: str, old: Any, new: Any) -> str:
    if name in {"checks", "schema", "secrets", "udf"}:
        return f"{name} changed"
    return f"{name} changed: {_written(old)} → {_written(new)}"


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return "nothing" if value is None else str(value)


def _first_other_line(old: str, new: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    number = 0
    while number < min(len(before), len(after)) and before[number] == after[number]:
        number += 1
    if number == len(before):
        return f"line {number + 1} is new: {_short(after[number].strip())}" if number < len(after) else "its ending"
    if number == len(after):
        return f"line {number + 1} is gone: {_short(before[number].strip())}"
    others = max(len(before), len(after)) - _same_at_the_end(before, after) - number - 1
    more = f", and {others} more {'line' if others == 1 else 'lines'}" if others > 0 else ""
    return f"line {number + 1}: {_change(before[number], after[number])}{more}"


def _same_at_the_end(before: list[str], after: list[str]) -> int:
    """Count the lines at the end of two texts that are the same."""
    same = 0
    while same < min(len(before), len(after)) and before[-1 - same] == after[-1 - same]:
        same += 1
    return same


def _change(before: str, after: str) -> str:
    """Show two lines from shortly before the place where they begin to differ."""
    if before.strip() != after.strip():
        before, after = before.strip(), after.strip()
    place = 0
    while place < min(len(before), len(after)) and before[place] == after[place]:
        place += 1
    if max(len(before), len(after)) <= _SHOWN:
        place = 0
    return f"{_short(before, place)} → {_short(after, place)}"


def _short(line: str, place: int = 0) -> str:
    """Quote what a line says around a place; what is left out is marked."""
    start = max(0, place - _BEFORE)
    end = start + _SHOWN
    return repr(f"{'…' if start else ''}{line[start:end]}{'…' if len(line) > end else ''}")
