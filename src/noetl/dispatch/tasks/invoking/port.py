"""The promise of an invocation: a function outside got the grant of a task and reports its end by the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from noetl.errors import InputError
from noetl.model.task import TaskGrant


class Invoker(Protocol):
    """Sends grants to functions of one kind."""

    async def invoke(self, grant: TaskGrant) -> None:
        """Return once the function has taken the grant; raises when it has not, so that the attempt has failed."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Invokers:
    """Chooses by the job's config: `url` names a function behind HTTP, `function` one of AWS Lambda."""

    def __init__(self, by_field: Mapping[str, Invoker]) -> None:
        self._by_field = dict(by_field)

    async def invoke(self, grant: TaskGrant) -> None:
        """Send a grant to the function its job names."""
        for field, invoker in self._by_field.items():
            if field in grant.config:
                await invoker.invoke(grant)
                return
        known = " or ".join(f"config.{field}" for field in sorted(self._by_field)) or "nothing in this installation"
        raise InputError(f"job {grant.job} of {grant.dag} names no function to invoke", hint=f"give {known}")

    async def close(self) -> None:
        """Let go of all connections."""
        for invoker in self._by_field.values():
            await invoker.close()
