"""Which lists of tasks have what each of their tasks came to recorded: those that somebody reads as `<step>.results`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from noetl.execute.compiled import program_of
from noetl.playbook.model import Playbook, Step, Task
from noetl.playbook.templates import compiled, is_template

_KNOWN_MOST = 10_000
_known: dict[str, frozenset[str]] = {}


def steps_read_by_task(playbook: Playbook) -> frozenset[str]:
    """Return the lists of tasks of a playbook whose tasks' results are read after the step."""
    if playbook.digest not in _known:
        if len(_known) > _KNOWN_MOST:
            _known.clear()
        _known[playbook.digest] = frozenset(_read(playbook))
    return _known[playbook.digest]


def _read(playbook: Playbook) -> Iterator[str]:
    listed = {name for name, step in playbook.steps.items() if step.is_sequence and step.loop is None}
    if not listed:
        return
    tasks = [*playbook.workbook.values(), *(task for step in playbook.steps.values() for task in step.tasks)]
    paths = {path for text in _texts(msgspec.to_builtins(playbook.steps)) for path in _paths(text)}
    paths |= {path for text in _texts(msgspec.to_builtins(playbook.workbook)) for path in _paths(text)}
    programs = [text for task in tasks if "results" in (text := _program(task))]
    for name in listed:
        in_templates = any(path[:2] == (name, "results") for path in paths)
        if in_templates or any(name in text for text in programs) or _asks_itself(playbook.steps[name]):
            yield name


def _asks_itself(step: Step) -> bool:
    leaving = [step.set, msgspec.to_builtins(step.router)]
    return any(path[:2] == ("output", "results") for text in _texts(leaving) for path in _paths(text))


def _program(task: Task) -> str:
    return str(task.options.get(program_of(task) or "", ""))


def _paths(text: str) -> frozenset[tuple[str | int, ...]]:
    return compiled(text).paths if is_template(text) else frozenset()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
