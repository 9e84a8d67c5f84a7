"""Signatures of what is sent to webhooks: headers, body, secrets and the time go in, what the request is known by comes out.

`noetl`: `X-Noetl-Signature: t=SECONDS,v1=HEX`, HMAC-SHA256 of `SECONDS.BODY`, or of `SECONDS.DELIVERY.BODY` if
`X-Noetl-Delivery` is sent. `github`: `X-Hub-Signature-256: sha256=HEX`, HMAC-SHA256 of the body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

SignatureStyle = Literal["noetl", "github", "none"]

SIGNATURE: Final = "x-noetl-signature"
DELIVERY: Final = "x-noetl-delivery"
GITHUB_SIGNATURE: Final = "x-hub-signature-256"
WINDOW_SECONDS: Final = 300.0

_DELIVERY: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")
_MOST_SIGNATURES: Final = 8


class Unsigned(Exception):
    """The request is not signed as it should be; the text is for the log, never for its sender."""


def signed(
    style: SignatureStyle,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[bytes],
    *,
    now: float,
    window_seconds: float = WINDOW_SECONDS,
) -> str | None:
    """Return what a request is known by should it come again, None if by nothing; `Unsigned` if it is not to be taken.

    `headers` have small names. Any of the secrets may have signed it. `now` is in seconds since 1970.
    """
    match style:
        case "noetl":
            return _noetl(headers, body, secrets, now, window_seconds)
        case "github":
            return _github(headers, body, secrets)
        case "none":
            given = _delivery(headers)
            return None if given is None else _known("delivery", given)


def signature_of(secret: bytes, body: bytes, *, seconds: int, delivery: str | None = None) -> str:
    """Return the value of `X-Noetl-Signature` for a body."""
    return f"t={seconds},v1={_digest(secret, _told(str(seconds), delivery, body))}"


def _noetl(headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes], now: float, window: float) -> str:
    parts = [part.strip().partition("=") for part in headers.get(SIGNATURE, "").split(",")]
    seconds = next((value for name, _, value in parts if name == "t"), "")
    given = [value for name, _, value in parts if name == "v1"][:_MOST_SIGNATURES]
    delivery = _delivery(headers)
    told = _told(seconds, delivery, body)
    # Compared before the time is looked at, so that the answer takes as long whatever is wrong.
    good = _any_of(given, (_digest(secret, told) for secret in secrets))
    if not _SECONDS.fullmatch(seconds) or not given:
        raise Unsigned(f"it has no {SIGNATURE} of the form t=SECONDS,v1=HEX")
    if not good:
        raise Unsigned("its signature is not that of the secret")
    if abs(now - int(seconds)) > window:
        raise Unsigned(f"it was signed {now - int(seconds):.0f} s ago")
    return _known("delivery", delivery) if delivery is not None else _known("signature", told)


def _github(headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes]) -> str:
    given = headers.get(GITHUB_SIGNATURE, "").strip()
    if not _any_of([given.removeprefix("sha256=")], (_digest(secret, body) for secret in secrets)):
        raise Unsigned("its signature is not that of the secret" if given else f"it has no {GITHUB_SIGNATURE}")
    # The id of the delivery is in a header that nobody signed: whoever repeats the body may make one up.
    return _known("body", body)


def _delivery(headers: Mapping[str, str]) -> str | None:
    given = headers.get(DELIVERY)
    if given is not None and not _DELIVERY.fullmatch(given):
        raise Unsigned(f"its {DELIVERY} is not up to 128 letters, digits, dashes and underscores")
    return given


def _told(seconds: str, delivery: str | None, body: bytes) -> bytes:
    head = seconds if delivery is None else f"{seconds}.{delivery}"
    return head.encode() + b"." + body


def _digest(secret: bytes, told: bytes) -> str:
    return hmac.new(secret, told, hashlib.sha256).hexdigest()


def _any_of(given: Sequence[str], right: Iterable[str]) -> bool:
    """Compare every signature with every right one, however early one fits."""
    good = False
    for digest in right:
        for one in given:
            good |= hmac.compare_digest(one.encode(), digest.encode())
    return good


def _known(kind: str, told: str | bytes) -> str:
    return hashlib.sha256(f"{kind}:".encode() + (told.encode() if isinstance(told, str) else told)).hexdigest()
