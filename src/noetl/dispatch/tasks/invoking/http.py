"""Functions behind HTTP: the grant is POSTed as JSON; any 2xx says that it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.errors import InputError, Unavailable
from noetl.model.task import TaskGrant

if TYPE_CHECKING:
    import aiohttp


class HttpInvoker:
    """POSTs to `config.url` of a job."""

    def __init__(self, *, headers: dict[str, str] | None = None, timeout_seconds: float = 30.0) -> None:
        self._headers = headers or {}
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def invoke(self, grant: TaskGrant) -> None:
        """Send a grant."""
        import aiohttp  # the few processes that send wait for it, not every command

        url = str(grant.config["url"])
        if not url.startswith(("http://", "https://")):
            raise InputError(f"config.url of job {grant.job} is no http address")
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, headers=self._headers)
        try:
            async with self._session.post(
                url, data=msgspec.json.encode(grant), headers={"Content-Type": "application/json"}
            ) as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise Unavailable(f"the function of job {grant.job} does not answer: {type(problem).__name__}") from problem
        if status >= 500 or status == 429:
            raise Unavailable(f"the function of job {grant.job} answers {status}")
        if not 200 <= status < 300:
            raise InputError(f"the function of job {grant.job} refuses the task with {status}")

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
