"""The `nats` kind: one operation on key-value buckets, object buckets, JetStream streams or plain subjects per task."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from nats import errors
from nats.js import errors as js_errors

from noetl.engine.tools.nats.connection import client_of
from noetl.engine.tools.nats.operations import OPERATIONS
from noetl.engine.tools.outcome import Outcome, ProblemKind, failed, refusal
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.errors import NoetlError


class NatsTool:
    """Talks to NATS servers."""

    kind: ClassVar[str] = "nats"

    async def run(self, call: Call) -> Outcome:
        """Do the operation of one call."""
        name = call.options.get("operation")
        operation = OPERATIONS.get(str(name))
        if operation is None:
            known = ", ".join(sorted(OPERATIONS))
            return failed("schema", f"operation: {name!r} is none of {known}", source=self.kind)
        try:
            async with asyncio.timeout(ahead_of(call.timeout)):
                client = await client_of(call)
                return Outcome(data=plain(await operation(client, call)))
        except NoetlError as error:
            return refusal(error, self.kind)
        except (errors.Error, TimeoutError, OSError, ValueError) as error:
            return _problem(error, call)


_PROBLEMS: tuple[tuple[type[BaseException], ProblemKind, bool], ...] = (
    (js_errors.NotFoundError, "not_found", False),
    (js_errors.NoStreamResponseError, "not_found", False),
    (js_errors.ServiceUnavailableError, "server_error", True),
    (js_errors.ServerError, "server_error", True),
    (js_errors.APIError, "client_error", False),
    (errors.AuthorizationError, "auth", False),
    (errors.InvalidUserCredentialsError, "auth", False),
    (errors.MaxPayloadError, "client_error", False),
    (errors.BadSubjectError, "schema", False),
    (js_errors.InvalidKeyError, "schema", False),
    (js_errors.InvalidBucketNameError, "schema", False),
    (js_errors.InvalidObjectNameError, "schema", False),
    (js_errors.DigestMismatchError, "parse", True),
    (TimeoutError, "timeout", True),
    (errors.Error, "connection", True),
    (OSError, "connection", True),
    (ValueError, "schema", False),
)


def _problem(error: Exception, call: Call) -> Outcome:
    kind, retryable = next((kind, again) for known, kind, again in _PROBLEMS if isinstance(error, known))
    place = ", ".join(
        f"{name} {call.options[name]}"
        for name in ("bucket", "key", "name", "stream", "subject")
        if call.options.get(name)
    )
    # The words of other errors may quote an address with a password in it.
    words = getattr(error, "description", None) if isinstance(error, js_errors.APIError) else None
    message = f"{call.options['operation']}{f' ({place})' if place else ''}: {words or type(error).__name__}"
    name = type(error).__name__
    return failed(kind, message, source=NatsTool.kind, retryable=retryable, code=_code(name), exception_type=name)


def _code(name: str) -> str:
    letters = (f"_{letter.lower()}" if letter.isupper() else letter for letter in name.removesuffix("Error"))
    return "nats" + "".join(letters)
