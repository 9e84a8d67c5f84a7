"""What the planner's templates see: state goes in, names come out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from noetl.engine.plan.state import Result, State
from noetl.language.templates.result_view import View
from noetl.language.templates.scopes import Names, names_of

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


TIER: Final = "object"
"""Where a result with a reference is kept, as `_store` tells it: the tier of payloads that every other one is filled from."""

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


def view(result: Result, loaded: Any = NOT_LOADED) -> View:
    """Return how a step's result looks in templates: its own fields, and beside them `data`, `status` and the like.

    `result` is an older word for `data`.
    """
    value = data = whole(result, loaded)
    if isinstance(data, Mapping) and data.keys() - {"results"} == COUNTS:
        # As older playbooks read them; derived here, never recorded.
        value = {**data, "stats": {name: data[name] for name in ("total", "completed", "failed")}}
    before: dict[str, Any] = {}
    if result.ref is not None:
        before |= {"_ref": msgspec.to_builtins(result.ref), "_uri": result.ref.uri, "_store": TIER}
    if result.accumulated is not None:
        before["accumulated"] = result.accumulated
    beside = {**result.selected, "data": data, "context": data, "result": data, "status": result.status}
    if result.last_task is not None:
        beside["results"] = {**result.tasks, result.last_task: data}
    return View(value, before=before, beside=beside)


def state_names(
    state: State,
    *,
    steps: Collection[str],
    asked: frozenset[str],
    loaded: Mapping[str, Any] = {},
    output: Mapping[str, Any] | None = None,
    event: Mapping[str, Any] = {},
) -> Names:
    """Return the names for the planner's templates; `loaded` holds data of results that stand outside the ledger.

    `steps` are all there are, whether they have run or not.

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
        steps=steps,
        event=event,
        output=output,
        job={"uuid": str(state.execution_id), "execution_id": str(state.execution_id)},
    )
