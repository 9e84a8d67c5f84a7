"""What a step's templates see on a worker: the grant's values go in, names come out, large results fetched if read."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.dispatch.grants import CommandGrant
from noetl.dispatch.results import rows_of
from noetl.execute.services import Services
from noetl.model.payload_ref import PayloadRef
from noetl.payloads.codec import ARROW_STREAM, JSON, decode_json
from noetl.plan.names import view
from noetl.plan.planned import data_read
from noetl.playbook.model import Playbook, Step
from noetl.playbook.scopes import Names, names_of


async def names_for(services: Services, grant: CommandGrant, playbook: Playbook) -> Names:
    """Return the names a step's run starts from."""
    step = playbook.steps[grant.step]
    read = _reads(playbook, step)
    results: dict[str, Any] = {}
    for name, result in grant.context.results.items():
        if result.ref is not None and (read is None or name in read):
            results[name] = view(result, await load(services, result.ref))
        else:
            results[name] = view(result)
    names = names_of(
        execution_id=grant.execution_id,
        catalog_id=grant.catalog_id,
        workload=grant.context.workload,
        ctx=grant.context.ctx,
        results=results,
        event={"name": "step.entered", "step": grant.step},
        job={"uuid": str(grant.execution_id), "execution_id": str(grant.execution_id)},
    )
    if playbook.keychain:
        names["keychain"] = await services.secrets.keychain(grant, playbook, names)
    return names


async def load(services: Services, ref: PayloadRef) -> Any:
    """Return the value of a payload: JSON as it is, a frame's results as rows."""
    data = await services.store.fetch(services.scope, ref)
    if ref.media_type == JSON:
        return decode_json(data)
    return {"rows": rows_of(data)} if ref.media_type == ARROW_STREAM else data.decode(errors="replace")


_READS: dict[tuple[str, str], frozenset[str] | None] = {}


def _reads(playbook: Playbook, step: Step) -> frozenset[str] | None:
    """Return the steps whose data a step looks at; None when its code may look at any."""
    key = (playbook.digest, step.name)
    if key not in _READS:
        if len(_READS) > 10_000:
            _READS.clear()
        kinds = {task.kind for task in step.tasks} | {task.kind for task in playbook.workbook.values()}
        _READS[key] = None if "python" in kinds else data_read(msgspec.to_builtins(step))
    return _READS[key]
