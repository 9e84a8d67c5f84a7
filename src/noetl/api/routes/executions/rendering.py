"""Templates tried against an execution: what a template would come to there goes out; nothing is recorded."""

from __future__ import annotations

from typing import Any

from msgspec import field

from noetl.api.endpoint import WRITERS, Call, Routes
from noetl.api.problems import TooLarge
from noetl.api.wire import Body, Id, View
from noetl.engine.dispatch.loops.results import loaded
from noetl.engine.plan.fact import recorded
from noetl.engine.plan.state import Result
from noetl.engine.plan.template_names import view
from noetl.language.templates.result_view import View as Shown
from noetl.language.templates.result_view import output_view
from noetl.language.templates.scopes import names_of
from noetl.language.templates.template import compile_value, names_in
from noetl.model.ids import parse_id

routes = Routes("context")

_WHERE = "the template"


class RenderRequest(Body, frozen=True, kw_only=True):
    """Which execution, and a value with templates anywhere in it."""

    execution_id: Id
    template: Any
    names: dict[str, Any] = field(default_factory=dict)
    """Further names, before those of the execution: `output`, `iter` or `event`, which belong to one moment of a step."""


class Rendered(View, frozen=True, kw_only=True):
    """What it came to, as of a position of the execution."""

    execution_id: str
    rendered: Any
    as_of_position: int


@routes.post("/api/context/render", WRITERS, repeatable=True)
async def render_template(call: Call, body: RenderRequest) -> Rendered:
    """Render a template with the names that steps of an execution see now: its workload, `ctx` and results, but no secret."""
    seen = await call.services.reading.seen(call.scope, parse_id(body.execution_id))
    state, evaluating = seen.state, call.services.catalog.plans.evaluating
    compiled, asked = await evaluating.run(
        call.scope,
        lambda: (compile_value(body.template, _WHERE, keep=False), names_in(body.template, keep=False)),
    )
    results = {name: await _view(call, result) for name, result in state.results.items() if name in asked}
    plan = await call.services.catalog.plan(call.scope, state.catalog_id)
    given = body.names
    if isinstance(output := given.get("output"), dict):
        given = {**given, "output": output_view(output)}
    names = names_of(
        execution_id=state.execution_id,
        catalog_id=state.catalog_id,
        workload=state.workload,
        ctx=state.ctx,
        results=results,
        steps=plan.steps.keys(),
        job={"uuid": body.execution_id, "execution_id": body.execution_id},
    )
    rendered = await evaluating.run(call.scope, lambda: recorded(compiled.render(names.for_run(**given)), _WHERE))
    return Rendered(execution_id=body.execution_id, rendered=rendered, as_of_position=seen.as_of_position)


async def _view(call: Call, result: Result) -> Shown:
    outside, most = result.outside, call.services.max_payload_bytes
    if outside is None:
        return view(result)
    if outside.bytes > most:
        raise TooLarge(
            f"a result that the template reads has {outside.bytes} bytes, and this server takes {most} at once"
        )
    return view(result, await loaded(call.services.payloads, call.scope, outside))
