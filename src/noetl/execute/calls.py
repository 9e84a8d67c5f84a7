"""Makes calls of tools: what a task says, rendered, with what the worker knows added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noetl.dispatch.grants import CommandGrant
from noetl.execute.compiled import CompiledTask
from noetl.execute.services import ScopedPayloads, Services
from noetl.execute.tools.port import Call


def call_maker(services: Services, grant: CommandGrant, place: str) -> Callable[..., Call]:
    """Return what makes the calls of one run; `place` names the row, so that an effect has the same key in every try."""
    payloads = ScopedPayloads(services.store, services.scope, services.secrets.redaction)
    prefix = f"{grant.execution_id}/{grant.command_id.rsplit('/', 1)[0]}/{place}"

    def make(*, task: CompiledTask, run: int, **fields: Any) -> Call:
        return Call(
            key=f"{prefix}/{task.name}/{run}",
            owner=services.scope,
            execution_id=grant.execution_id,
            credentials=services.secrets.credentials,
            payloads=payloads,
            resources=services.resources,
            **fields,
        )

    return make
