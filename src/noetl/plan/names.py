"""What the planner's templates see: state goes in, names come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noetl.plan.state import Result, State
from noetl.playbook.scopes import Names, names_of

NOT_LOADED: Final = object()
"""Stands for data outside the ledger that nobody asked for."""


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


COUNTS: Final = frozenset({"total", "completed", "failed", "frames"})
"""What the result of every loop has; `results`, what its rows came to, stands beside them or behind its reference."""


def whole(result: Result, loaded: Any = NOT_LOADED) -> Any:
    """Return a step's data with what was loaded of them: all of them, or what the rows of a loop came to."""
    data = result.data
    if result.ref is not None and loaded is not NOT_LOADED:
        return loaded if data is None else {**data, "results": loaded}
    if isinstance(data, Mapping) and data.keys() == COUNTS and not data["total"]:
        return {**data, "results": []}  # no rows came to nothing, which is no reason to have no results
    return data


def view(result: Result, loaded: Any = NOT_LOADED) -> dict[str, Any]:
    """Return how a step's result looks in templates: its fields at the top, all of it as `data`, `_ref` beside."""
    data = whole(result, loaded)
    names: dict[str, Any] = {**result.selected}
    if isinstance(data, Mapping):
        names.update(data)
        if data.keys() - {"results"} == COUNTS:
            # As older playbooks read them; derived here, never recorded.
            names.setdefault("stats", {name: data[name] for name in ("total", "completed", "failed")})
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
        step: view(result, loaded.get(step, NOT_LOADED))
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
