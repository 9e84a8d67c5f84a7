"""Answers of the connection itself, before there is a request to route: a refusal goes in, the bytes of a whole answer come out."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal

from noetl.api import wire
from noetl.api.problems import MEDIA_TYPE, RETRY_SECONDS, Problem, TooLarge, TooMany
from noetl.errors import InputError

Reason = Literal["headers", "body", "request", "pipelining", "slow_headers", "slow_body", "unread", "crowded"]
"""Why a connection was ended, in the metrics."""
_CODES: Final = {
    400: InputError.code,
    408: "too_slow",
    413: TooLarge.code,
    429: TooMany.code,
    431: TooLarge.code,
    503: TooMany.code,
}


@dataclass(frozen=True)
class Refusal:
    """Why a connection is ended, and what its client is told."""

    reason: Reason
    status: int
    detail: str
    hint: str | None = None

    def answer(self) -> bytes:
        """Return the whole answer: a problem document, after which the connection closes."""
        status = HTTPStatus(self.status)
        code = _CODES[self.status]
        problem = Problem(
            type=f"urn:noetl:problem:{code}",
            title=status.phrase,
            status=self.status,
            code=code,
            detail=self.detail,
            hint=self.hint,
        )
        body = wire.encode(problem)
        head = [
            f"HTTP/1.1 {self.status} {status.phrase}",
            f"content-type: {MEDIA_TYPE}",
            f"content-length: {len(body)}",
            "cache-control: no-store",
            "connection: close",
        ]
        if self.status in (429, 503):
            head.append(f"retry-after: {RETRY_SECONDS}")
        return "\r\n".join([*head, "", ""]).encode() + body


MALFORMED: Final = Refusal("request", 400, "this is no HTTP/1.1 request, or one that could be read in two ways")
SLOW_HEADERS: Final = Refusal("slow_headers", 408, "the headers were not whole in time")
SLOW_BODY: Final = Refusal("slow_body", 408, "the body was not whole in time", "send it faster, or in smaller parts")
UNREAD: Final = Refusal("unread", 408, "the answer was not read in time")
CROWDED: Final = Refusal("crowded", 503, "there are too many connections", "close those that are not used")
PIPELINED: Final = Refusal("pipelining", 429, "too many requests wait on one connection", "wait for answers")


class Refused(Exception):
    """Ends the parsing of a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal
