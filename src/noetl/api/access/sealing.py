"""Answers with secrets: a caller and values go in, an answer that only this caller can open comes out."""

from __future__ import annotations

from typing import Any

from noetl.api.endpoint import Call
from noetl.api.wire import View
from noetl.errors import Denied
from noetl.services.credentials.sealed_answers import seal_answer


class SealedAnswer(View, frozen=True, kw_only=True):
    """Secrets for a worker, sealed with its token, or with what the server and the workers of its machine share."""

    sealed: str
    """Base64 of a nonce of 12 bytes and the JSON under AES-256-GCM, whose key is derived from the shared secret."""


def sealed(call: Call, value: Any) -> SealedAnswer:
    """Seal a value for the caller, or refuse where there is nothing to seal it with."""
    if call.caller.shared is None:
        raise Denied(
            "this server shares no secret with its workers, so it gives them none",
            hint="give the worker a token of the role worker",
        )
    return SealedAnswer(sealed=seal_answer(call.caller.shared, value))
