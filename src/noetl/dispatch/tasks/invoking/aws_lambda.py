"""Functions of AWS Lambda: the grant is the event of an asynchronous invocation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from noetl.dispatch.tasks.aws import client_of, translated
from noetl.errors import InputError, OutsideUnavailable
from noetl.model.task import TaskGrant

LIMIT_BYTES: Final = 256 * 1024
"""What Lambda takes as the event of an asynchronous invocation."""
_TAKEN: Final = 202


class LambdaInvoker:
    """Invokes `config.function` of a job: a name or an ARN."""

    def __init__(
        self,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        granted: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._granted = granted
        self._region = region
        self._endpoint = endpoint_url
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def invoke(self, grant: TaskGrant) -> None:
        """Send a grant, with the identity of the process where that is granted."""
        if self._granted is not None:
            await self._granted()
        event = msgspec.json.encode(grant)
        if len(event) > LIMIT_BYTES:
            raise InputError(
                f"the grant of a task of {grant.job} has {len(event)} bytes; AWS Lambda takes {LIMIT_BYTES}",
                hint="partition the inputs further, or use another runtime",
            )
        function = str(grant.config["function"])
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(client_of, "lambda", self._region, self._endpoint)
        with translated(f"the function {function}"):
            answer = await asyncio.to_thread(
                self._client.invoke, FunctionName=function, InvocationType="Event", Payload=event
            )
        if answer["StatusCode"] != _TAKEN:
            raise OutsideUnavailable(f"AWS Lambda answers {answer['StatusCode']} for the function {function}")

    async def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
