"""AWS clients and functions of AWS Lambda. The library is loaded only when a client is asked for."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from noetl.errors import ConfigError, Denied, InputError, NotFound, OutsideUnavailable, Unsupported
from noetl.model.task import TaskGrant


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise Unsupported("the AWS client library is not installed", hint="pip install 'noetl[aws]'") from problem


def client_of(service: str, region: str | None, endpoint_url: str | None) -> Any:
    """Return a client of a service with the identity boto3 finds in the process's surroundings."""
    settings = _library("botocore.config").Config(
        connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 3}
    )
    failures = _library("botocore.exceptions")
    try:
        # A session of its own: boto3's shared one must not be used from several threads.
        session = _library("boto3").session.Session()
        return session.client(service, region_name=region, endpoint_url=endpoint_url, config=settings)
    except failures.NoRegionError:
        raise ConfigError(
            f"no AWS region is given for {service}", hint="set AWS_REGION or the region setting"
        ) from None


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the library's errors into ours, once."""
    failures = _library("botocore.exceptions")
    try:
        yield
    except failures.ClientError as problem:
        code = str(problem.response.get("Error", {}).get("Code", ""))
        if "NotFound" in code or "NonExistent" in code or "DoesNotExist" in code:
            raise NotFound(f"there is no such thing as {what} ({code})") from None
        if code.startswith(("AccessDenied", "UnrecognizedClient", "InvalidSignature", "ExpiredToken", "InvalidClient")):
            raise Denied(f"AWS does not let this identity use {what} ({code})") from None
        raise OutsideUnavailable(f"AWS refuses a request to {what} ({code})") from None
    except (failures.NoCredentialsError, failures.PartialCredentialsError):
        raise Denied(f"there is no AWS identity to use {what} with", hint="give the process a role or keys") from None
    except failures.BotoCoreError as problem:
        raise OutsideUnavailable(f"AWS does not answer for {what}: {type(problem).__name__}") from None


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
