"""What a person should know of a run that went well: a playbook and its last state go in, short sentences come out.

A run that did nothing ends as well as any other, so what was left undone is told wherever the state tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from noetl.engine.plan.state import State
from noetl.engine.plan.template_names import COUNTS
from noetl.language.playbook.model import Playbook

_NAMED: Final = 5


def notes_of(playbook: Playbook, state: State) -> tuple[str, ...]:
    """Return what a run left undone: steps it never came to or did not admit, and loops that had no rows."""
    return tuple(_notes(playbook, state))


def _notes(playbook: Playbook, state: State) -> Iterator[str]:
    # A re-run from a step on has the results of those before it, and need not enter them.
    entered = [name for name in playbook.steps if state.runs.get(name) or name in state.results]
    missed = [name for name in playbook.steps if name not in entered]
    if missed:
        yield f"{len(entered)} of {len(playbook.steps)} steps were entered; never {_listed(missed)}"
    refused = [name for name in entered if _is_work(playbook, name) and name not in state.results]
    if refused:
        yield f"not admitted: {_listed(refused)}"
    empty = [name for name in entered if _had_no_rows(state, name)]
    if empty:
        yield f"the loop of {_listed(empty)} had no rows"


def _is_work(playbook: Playbook, name: str) -> bool:
    return any(task.kind != "noop" for task in playbook.steps[name].tasks)


def _had_no_rows(state: State, name: str) -> bool:
    result = state.results.get(name)
    data = None if result is None else result.data
    return isinstance(data, Mapping) and data.keys() >= COUNTS and not data["total"]


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
