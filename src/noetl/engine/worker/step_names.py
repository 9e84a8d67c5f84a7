"""What a step's templates see on a worker: the grant's values go in, names come out, large results fetched if read."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.loops.results import loaded
from noetl.engine.plan.planned import Reads, reads_of
from noetl.engine.plan.state import Result
from noetl.engine.plan.template_names import view
from noetl.engine.tools.port import Held
from noetl.engine.tools.secrets import opened
from noetl.engine.worker.bindings import CODE_KINDS, NAME_ALONE, TABLE_KINDS
from noetl.engine.worker.compiled_step import program_of
from noetl.engine.worker.services import Services
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.playbook.model import Playbook, Step, Task
from noetl.language.playbook.secret_tasks import secret_steps
from noetl.language.templates.result_view import View
from noetl.language.templates.scopes import Names, names_of
from noetl.language.templates.template import names_in
from noetl.model.payload_ref import FRAMES, PayloadRef
from noetl.model.stream import Scope


async def names_for(services: Services, grant: CommandGrant, playbook: Playbook) -> Names:
    """Return the names a step's run starts from."""
    names = await names_without_secrets(services.scope, services.store, grant, playbook)
    if playbook.keychain:
        names["keychain"] = await services.secrets.keychain(grant, playbook, names)
    for name in _secrets_read(playbook, playbook.steps[grant.step]) & grant.context.results.keys():
        result = grant.context.results[name]
        data = await opened(result.data, partial(services.secrets.secret, grant))
        names[name] = view(msgspec.structs.replace(result, data=data))
    return names


async def names_without_secrets(scope: Scope, store: PayloadStore, grant: CommandGrant, playbook: Playbook) -> Names:
    """Return the names that a playbook's keychain may be asked for with."""
    asked, reads = _uses(playbook, playbook.steps[grant.step])
    results: dict[str, Any] = {}
    for name, result in grant.context.results.items():
        if asked is not None and name not in asked:
            continue
        outside = result.outside
        if outside is None:
            results[name] = view(result)
        elif name in (reads.rows if outside.media_type == FRAMES else reads.data):
            results[name] = await _fetched(scope, store, result, outside)
        else:
            results[name] = view(result) if asked is not None else _held(scope, store, result, outside)
    return names_of(
        execution_id=grant.execution_id,
        catalog_id=grant.catalog_id,
        workload=grant.context.workload,
        ctx=grant.context.ctx,
        results=results,
        steps=playbook.steps.keys(),
        event={"name": "step.entered", "step": grant.step},
        job={"uuid": str(grant.execution_id), "execution_id": str(grant.execution_id)},
    )


async def _fetched(scope: Scope, store: PayloadStore, result: Result, outside: PayloadRef) -> View:
    return view(result, await loaded(store, scope, outside))


def _held(scope: Scope, store: PayloadStore, result: Result, outside: PayloadRef) -> Held:
    return Held(view(result), lambda: _fetched(scope, store, result, outside))


_Uses = tuple[frozenset[str] | None, Reads]
_USES: dict[tuple[str, str], _Uses] = {}


def _uses(playbook: Playbook, step: Step) -> _Uses:
    """Return the names a step asks for, None when its code may ask for any, and what its templates look at of them."""
    key = (playbook.digest, step.name)
    if key not in _USES:
        if len(_USES) > 10_000:
            _USES.clear()
        has_workbook = any(task.kind == "workbook" for task in step.tasks)
        tasks = [*step.tasks, *(playbook.workbook.values() if has_workbook else ())]
        kinds = {task.kind for task in tasks}
        # Of the rest the planner renders what there is to render.
        rest = msgspec.to_builtins((step.timeout, step.loop and step.loop.cursor, playbook.keychain))
        written = [rest, step.input, *map(_written, tasks)]
        asked, reads = names_in(written), reads_of(written)
        if kinds & TABLE_KINDS and "input" not in asked:
            shared = _without_tables(step.input) if kinds <= TABLE_KINDS else step.input
            reads = Reads(reads.data, reads_of([rest, shared, *map(_without_table_input, tasks)]).rows)
        _USES[key] = (None if kinds & CODE_KINDS else asked, reads)
    return _USES[key]


def _secrets_read(playbook: Playbook, step: Step) -> frozenset[str]:
    """Return the steps that come to a secret and that a step's templates read; code is given secrets by its input alone."""
    found = secret_steps(playbook)
    return found & names_in([step.input, *map(_written, step.tasks)]) if found else found


def _written(task: Task) -> dict[str, Any]:
    """Return a task as it is written, but for the text of programs, which is never rendered."""
    fields: dict[str, Any] = msgspec.to_builtins(task)
    program = program_of(task)
    options = {name: value for name, value in fields["options"].items() if name != program}
    return fields | {"options": options}


def _without_table_input(task: Task) -> dict[str, Any]:
    fields = _written(task)
    return fields | {"input": _without_tables(task.input)} if task.kind in TABLE_KINDS else fields


def _without_tables(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is bound to more than a name alone: a loop bound by its name is read by its reference."""
    return {name: value for name, value in given.items() if not NAME_ALONE.fullmatch(str(value))}
