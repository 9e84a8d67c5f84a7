"""What the planner's templates see: state goes in, names come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.plan.state import Result, State
from noetl.playbook.scopes import Names, names_of

_MISSING = object()


class EventName(str):
    """The name of what happened to a step; one happening has several names, and it equals each of them."""

    __slots__ = ("_names",)
    _names: frozenset[str]

    def __new__(cls, name: str, *others: str) -> EventName:
        made = super().__new__(cls, name)
        made._names = frozenset({name, *others})
        return made

    def __eq__(self, other: object) -> bool:
        return other in self._names if isinstance(other, str) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


DONE = EventName("call.done", "step.done", "step.exit", "step.exited", "command.completed")
FAILED = EventName("call.error", "step.failed", "step.exit", "step.exited", "command.failed")
LOOP_DONE = EventName("loop.done", "call.done", "step.done", "step.exit", "step.exited", "loop.fanin.completed")
LOOP_FAILED = EventName("loop.done", "call.error", "step.failed", "step.exit", "step.exited", "loop.fanin.completed")
"""All rows have ended, and not all of them well."""


def view(result: Result, loaded: Any = _MISSING) -> dict[str, Any]:
    """Return how a step's result looks in templates: its fields at the top, all of it as `data`, `_ref` beside."""
    # A loop's counts stand in its result, and its reference is to its frames' results: these hide nothing.
    is_outside = result.ref is not None and result.data is None
    data = loaded if is_outside and loaded is not _MISSING else result.data
    names: dict[str, Any] = {**result.selected}
    if isinstance(data, Mapping):
        names.update(data)
    names.setdefault("data", data)
    names.setdefault("status", result.status)
    names["_ref"] = None if result.ref is None else msgspec.to_builtins(result.ref)
    if result.accumulated is not None:
        names["accumulated"] = result.accumulated
    return names


def state_names(
    state: State,
    *,
    asked: frozenset[str],
    loaded: Mapping[str, Any] = {},
    output: Mapping[str, Any] | None = None,
    event: Mapping[str, Any] = {},
) -> Names:
    """Return the names for the planner's templates; `loaded` holds data of results that stand outside the ledger.

    Of the results only those asked for are made ready: an execution may have thousands.
    """
    results = {
        step: view(result, loaded[step]) if step in loaded else view(result)
        for step in asked
        if (result := state.results.get(step)) is not None
    }
    return names_of(
        execution_id=state.execution_id,
        catalog_id=state.catalog_id,
        workload=state.workload,
        ctx=state.ctx,
        results=results,
        event=event,
        output=output,
        job={"uuid": str(state.execution_id), "execution_id": str(state.execution_id)},
    )
