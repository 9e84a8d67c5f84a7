"""Functions behind HTTP: the grant is POSTed as JSON; any 2xx says that it is taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from noetl.errors import InputError, OutsideUnavailable, Unavailable
from noetl.kernel.outgoing.guard import ANYWHERE, AddressRefused, Reach
from noetl.model.task import TaskGrant


async def _anywhere() -> Reach:
    return ANYWHERE


class HttpInvoker:
    """POSTs to `config.url` of a job, which its author chose: `reach` says where that may be."""

    def __init__(
        self,
        *,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = 30.0,
        reach: Callable[[], Awaitable[Reach]] = _anywhere,
    ) -> None:
        self._headers = {**(headers or {}), "Content-Type": "application/json"}
        self._timeout_seconds = timeout_seconds
        self._reach = reach

    async def invoke(self, grant: TaskGrant) -> None:
        """Send a grant."""
        from noetl.kernel.outgoing.guarded_request import (
            ask,  # the few processes that send wait for its client, not every command
        )

        url = str(grant.config["url"])
        if not url.startswith(("http://", "https://")):
            raise InputError(f"config.url of job {grant.job} is no http address")
        try:
            answer = await ask(
                "POST", url, await self._reach(), headers=self._headers, seconds=self._timeout_seconds,
                data=msgspec.json.encode(grant),
            )  # fmt: skip
        except AddressRefused as refused:
            raise InputError(f"config.url of job {grant.job}: {refused.message}", hint=refused.hint) from None
        except Unavailable as problem:
            raise OutsideUnavailable(f"the function of job {grant.job} does not answer: {problem.message}") from problem
        status = answer.status
        if status >= 500 or status == 429:
            raise OutsideUnavailable(f"the function of job {grant.job} answers {status}")
        if not 200 <= status < 300:
            raise InputError(f"the function of job {grant.job} refuses the task with {status}")

    async def close(self) -> None:
        """Hold nothing."""
