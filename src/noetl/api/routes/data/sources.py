"""Source jobs of a DAG: started by hand, paused and let go on."""

from __future__ import annotations

from noetl.api.endpoint import WRITERS, Call, Routes
from noetl.api.routes.data.dags import RunAnswer, emitted
from noetl.api.wire import View
from noetl.pipelines.sources.turns import Turns

routes = Routes("sources")


class TurnAnswer(View, frozen=True, kw_only=True):
    """The turn that was stopped, or goes on."""

    dag: str
    job: str
    task_id: str


@routes.post("/api/dags/{dag}/jobs/{job}/emit", WRITERS, status=201, keyed=True)
async def emit_job(call: Call, dag: str, job: str) -> RunAnswer:
    """Start a source job of the version that serves readers; whatever reads it follows.

    With an Idempotency-Key, a second request under the same key gives the run the first one started.
    """
    return await emitted(call, dag, job)


@routes.post("/api/dags/{dag}/jobs/{job}/pause", WRITERS, repeatable=True)
async def pause_source(call: Call, dag: str, job: str) -> TurnAnswer:
    """Ask the turn of a source that is kept running to stop, and let none follow until it is resumed."""
    turns = Turns(call.services.database, call.pipelines().engine)
    return TurnAnswer(dag=dag, job=job, task_id=await turns.pause(call.scope, dag, job, by=call.caller.name))


@routes.post("/api/dags/{dag}/jobs/{job}/resume", WRITERS, repeatable=True)
async def resume_source(call: Call, dag: str, job: str) -> TurnAnswer:
    """Let a source that was paused go on where it stopped."""
    turns = Turns(call.services.database, call.pipelines().engine)
    return TurnAnswer(dag=dag, job=job, task_id=await turns.resume(call.scope, dag, job, by=call.caller.name))
