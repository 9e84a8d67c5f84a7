"""Makes calls of tools: what a task says, rendered, with what the worker knows added."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from noetl.dispatch.grants import CommandGrant
from noetl.execute.compiled import CompiledTask
from noetl.execute.services import ScopedPayloads, Services
from noetl.execute.tools.port import Call, Settling


class CallMaker:
    """Makes the calls of one command."""

    def __init__(self, services: Services, grant: CommandGrant, settling: Settling | None = None) -> None:
        self._prefix = f"{grant.execution_id}/{grant.command_id.rsplit('/', 1)[0]}"
        self._known: dict[str, Any] = {
            "owner": services.scope,
            "execution_id": grant.execution_id,
            "credentials": services.secrets.credentials,
            "payloads": ScopedPayloads(services.store, services.scope, services.secrets.redaction, services.find),
            "resources": services.resources,
            "secret": partial(services.secrets.secret, grant),
            "settling": settling,
        }

    def at(self, place: str | int) -> Callable[..., Call]:
        """Return what makes the calls of one run; `place` names the row, so that an effect has the same key in every try."""
        prefix, known = f"{self._prefix}/{place}", self._known

        def make(*, task: CompiledTask, run: int, **fields: Any) -> Call:
            return Call(key=f"{prefix}/{task.name}/{run}", **known, **fields)

        return make


def call_maker(
    services: Services, grant: CommandGrant, place: str, settling: Settling | None = None
) -> Callable[..., Call]:
    """Return what makes the calls of a single run."""
    return CallMaker(services, grant, settling).at(place)
