"""What a step's templates see on a worker: the grant's values go in, names come out, large results fetched if read."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.dispatch.grants import CommandGrant
from noetl.dispatch.results import rows_of
from noetl.execute.services import Services
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.codec import ARROW_STREAM, JSON, decode_json
from noetl.payloads.port import PayloadStore
from noetl.plan.names import view
from noetl.plan.planned import data_read
from noetl.playbook.model import Playbook, Step
from noetl.playbook.scopes import Names, names_of
from noetl.playbook.templates import names_in


async def names_for(services: Services, grant: CommandGrant, playbook: Playbook) -> Names:
    """Return the names a step's run starts from."""
    names = await names_without_secrets(services.scope, services.store, grant, playbook)
    if playbook.keychain:
        names["keychain"] = await services.secrets.keychain(grant, playbook, names)
    return names


async def names_without_secrets(scope: Scope, store: PayloadStore, grant: CommandGrant, playbook: Playbook) -> Names:
    """Return the names that a playbook's keychain may be asked for with."""
    step = playbook.steps[grant.step]
    asked, read = _uses(playbook, step)
    results: dict[str, Any] = {}
    for name, result in grant.context.results.items():
        if asked is not None and name not in asked:
            continue
        if result.ref is not None and (read is None or name in read):
            results[name] = view(result, await _loaded(scope, store, result.ref))
        else:
            results[name] = view(result)
    return names_of(
        execution_id=grant.execution_id,
        catalog_id=grant.catalog_id,
        workload=grant.context.workload,
        ctx=grant.context.ctx,
        results=results,
        event={"name": "step.entered", "step": grant.step},
        job={"uuid": str(grant.execution_id), "execution_id": str(grant.execution_id)},
    )


async def load(services: Services, ref: PayloadRef) -> Any:
    """Return the value of a payload: JSON as it is, a frame's results as rows."""
    return await _loaded(services.scope, services.store, ref)


async def _loaded(scope: Scope, store: PayloadStore, ref: PayloadRef) -> Any:
    if ref.media_type == ARROW_STREAM:
        return {"rows": rows_of(await store.view(scope, ref))}
    data = await store.fetch(scope, ref)
    return decode_json(data) if ref.media_type == JSON else data.decode(errors="replace")


_Uses = tuple[frozenset[str] | None, frozenset[str] | None]
_USES: dict[tuple[str, str], _Uses] = {}


def _uses(playbook: Playbook, step: Step) -> _Uses:
    """Return the names a step's templates ask for and the steps whose data they look at; None when its code may use any."""
    key = (playbook.digest, step.name)
    if key not in _USES:
        if len(_USES) > 10_000:
            _USES.clear()
        kinds = {task.kind for task in step.tasks}
        workbook = playbook.workbook if "workbook" in kinds else {}
        kinds |= {task.kind for task in workbook.values()}
        written = msgspec.to_builtins((step, workbook, playbook.keychain))
        _USES[key] = (None, None) if "python" in kinds else (names_in(written), data_read(written))
    return _USES[key]
