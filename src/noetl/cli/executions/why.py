"""`noetl why`: why an execution, a step or a frame is as it is, in sentences that name the events they rest on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from noetl.runtime.commands.execution import find_execution, newest_frame, plan_of
from noetl.runtime.commands.selection import LAST

if TYPE_CHECKING:
    from noetl.engine.dispatch.why.explanation import Explanation


@click.command()
@click.argument("execution")
@click.argument("what", required=False, metavar="[STEP|FRAME_ID]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def why(execution: str, what: str | None, as_json: bool) -> None:
    """Explain an execution: what it waits for, why it failed, what errors it passed over.

    EXECUTION is an id, a locator (noetl://…/execution/<id>) or `last` for the newest execution. With a STEP, each of its
    runs is explained: why it began, was skipped or tried again, and where it led. With a FRAME_ID, or `last`
    for the newest frame, the frame's owners, losses, rows and failures. Every sentence ends in the events it rests on, which `noetl events` shows.

    \b
    Examples:
      noetl why last
      noetl why last fetch_patients
      noetl why 604876797720658689 1162849153263398913
      noetl why last --json | jq '.sentences[] | select(.topic == "failure")'
    """
    explanation = asyncio.run(_why(execution, what))
    if as_json:
        click.echo(json.dumps(explanation.to_json(), indent=2, ensure_ascii=False))
    else:
        _show(explanation)


async def _why(execution: str, what: str | None) -> Explanation:
    from noetl.engine.dispatch.why.explanation import why as explain
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        scope, execution_id = await find_execution(runtime, execution)
        plan = await plan_of(runtime, scope, execution_id)
        # A step may be called by a number, or last; a playbook that has such a step means it.
        is_step = plan is not None and what in plan.steps
        if what == LAST and not is_step:
            what = str(await newest_frame(runtime, scope, execution_id))
        is_frame = what is not None and what.isdecimal() and not is_step
        return await explain(
            runtime.ledger,
            runtime.payloads,
            plan,
            scope,
            execution_id,
            step=None if is_frame else what,
            frame_id=int(what) if what is not None and is_frame else None,
        )


def _show(explanation: Explanation) -> None:
    for said in explanation.sentences:
        ids = f"  [{', '.join(map(str, said.event_ids))}]" if said.event_ids else ""
        click.echo(f"{said.text[:1].upper()}{said.text[1:]}{ids}")
