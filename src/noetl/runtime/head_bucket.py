"""Heads in S3 with object lock: each is an object of its own, of which nobody can change or remove a version until its time is over.

S3 takes a newer version of a locked object, and gives that to whoever asks for none in particular. The digest in the key tells
which content was meant, and the oldest version is the one that was there first.
The request is signed here (AWS Signature Version 4), since the object store's client cannot ask for a lock.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import md5, sha256
from urllib.parse import quote, urlsplit

import aiohttp

from noetl.errors import ConfigError, Unavailable
from noetl.kernel.ledger.chain.heads import Head
from noetl.runtime.settings.signed_heads import HeadBucket

_SECONDS = 30


class LockedBucket:
    """Publishes heads to one bucket."""

    def __init__(self, settings: HeadBucket, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        if settings.bucket is None or settings.access_key is None or settings.secret_key is None:
            raise ConfigError(
                "heads are to be published to S3, and bucket, access_key or secret_key is missing",
                hint="set all three under event_store.heads.s3",
            )
        self._settings = settings
        self._bucket = settings.bucket
        self._access_key = settings.access_key
        self._secret = settings.secret_key.get_secret_value()
        self._now = now

    def key(self, head: Head) -> str:
        """Return the key of a head: by size, and with the SHA-256 of the object's content.

        Another head of the same size, such as one that is signed after a restore, is another object beside it.
        """
        digest = sha256(head.line().encode()).hexdigest()
        return f"{self._settings.prefix}/{head.ledger}/{head.shard:02d}/{head.size:019d}-{digest}.json"

    async def publish(self, head: Head) -> None:
        """Put a head under its lock."""
        url, headers = self._request(head, head.line().encode())
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.put(url, data=head.line().encode(), headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status >= 300:
                    said = (await answer.text())[:300]
                    raise Unavailable(f"S3 refused a signed head with {answer.status}: {said}")
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise Unavailable(f"S3 does not take a signed head: {problem or 'no answer'}") from problem

    def _request(self, head: Head, body: bytes) -> tuple[str, dict[str, str]]:
        own, at = self._settings, self._now()
        region = own.region
        base = own.endpoint.get_secret_value() if own.endpoint else f"https://s3.{region}.amazonaws.com"
        parts = urlsplit(base)
        path = quote(f"{parts.path.rstrip('/')}/{self._bucket}/{self.key(head)}")
        until = at + timedelta(days=own.lock_days)
        headers = {
            # S3 takes an object with a lock only with a digest of its own choice.
            "content-md5": base64.b64encode(md5(body, usedforsecurity=False).digest()).decode(),
            "content-type": "application/json",
            "host": parts.netloc,
            "x-amz-content-sha256": sha256(body).hexdigest(),
            "x-amz-date": f"{at:%Y%m%dT%H%M%SZ}",
            "x-amz-object-lock-mode": "COMPLIANCE",
            "x-amz-object-lock-retain-until-date": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        }
        signed = ";".join(headers)
        asked = "\n".join(
            (
                "PUT",
                path,
                "",
                *(f"{name}:{value}" for name, value in headers.items()),
                "",
                signed,
                sha256(body).hexdigest(),
            )
        )
        scope = f"{at:%Y%m%d}/{region}/s3/aws4_request"
        told = "\n".join(("AWS4-HMAC-SHA256", headers["x-amz-date"], scope, sha256(asked.encode()).hexdigest()))
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, told.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        return f"{parts.scheme}://{parts.netloc}{path}", headers
