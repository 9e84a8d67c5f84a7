"""The shared values (`ctx`) of an execution."""

from __future__ import annotations

from typing import Any

from noetl.api.endpoint import READERS, Call, Routes
from noetl.api.wire import View, combined
from noetl.errors import NotFound
from noetl.model.ids import Id64

routes = Routes("vars")


class Variables(View, frozen=True, kw_only=True):
    """The values as of a position."""

    execution_id: Id64
    ctx: dict[str, Any]
    as_of_position: int


class Variable(View, frozen=True, kw_only=True):
    """One value as of a position."""

    execution_id: Id64
    name: str
    value: Any
    as_of_position: int


@routes.get("/api/vars/{execution_id}", READERS)
async def get_variables(call: Call, execution_id: int) -> Variables:
    """Return the values that steps of an execution have set."""
    seen = await call.services.reading.seen(call.scope, execution_id)
    return combined(Variables, seen, seen.state)


@routes.get("/api/vars/{execution_id}/{name}", READERS)
async def get_variable(call: Call, execution_id: int, name: str) -> Variable:
    """Return one of the values."""
    seen = await call.services.reading.seen(call.scope, execution_id)
    if name not in seen.state.ctx:
        raise NotFound(f"execution {execution_id} has set no {name!r}")
    return combined(Variable, seen, seen.state, name=name, value=seen.state.ctx[name])
