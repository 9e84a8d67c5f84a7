"""Webhooks: what others send becomes rows of a source, once, after its signature was checked."""

from __future__ import annotations

import asyncio

from noetl.api.endpoint import Answer, Call, Routes
from noetl.api.wire import View
from noetl.model.dataset import Field
from noetl.model.stream import Scope
from noetl.pipelines.operators.webhook import sent_table
from noetl.pipelines.plan.schema_rules import spelled
from noetl.pipelines.tasks.jobs import JobFacts

routes = Routes("hooks")


class HookAnswer(View, frozen=True, kw_only=True):
    """The run that makes rows of what was sent; `new` is false when the same was sent before."""

    execution_id: str
    new: bool


@routes.post("/api/hooks/{tenant}/{organization}/{dag}/{path:path}", None, status=202, repeatable=True, reads_body=True)
async def take_hook(call: Call, tenant: str, organization: str, dag: str, path: str) -> Answer | HookAnswer:
    """Take what is sent to a webhook source: a JSON object, a list of objects, or one object per line.

    It must be signed with the source's secret, not long ago. The same sent again gives the run the first one started.
    """
    gate = call.services.hooks
    # Read before the gate is entered: whoever sends slowly takes nobody's place.
    body = await gate.body(call.request)
    async with gate.entered():
        scope = Scope(tenant, organization)
        found = await gate.admitted(call.request, call.services.pipelines, scope, dag, f"/{path}", body)
        facts, hooks, known_by = found
        await asyncio.to_thread(_look, facts, body)
        run, new = await hooks.take(scope, facts, body, known_by)
    return Answer(HookAnswer(execution_id=str(run), new=new), 202)


def _look(facts: JobFacts, body: bytes) -> None:
    """Refuse what no rows can be made of, as far as that shows before the task runs."""
    job = facts.definition
    if job.operator == "webhook":
        declared = [Field(one.name, spelled(one.type), one.nullable) for one in job.schema.columns]
        sent_table(body, job.config, declared, (), 0)
