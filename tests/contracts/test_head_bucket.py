"""Heads in S3, against a real server: it takes the signed request with its lock, and gives the head back."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from noetl.errors import ConfigError, Unavailable
from noetl.kernel.ledger.chain.heads import Head, Signer, is_signed_by, read_heads
from noetl.runtime.head_bucket import LockedBucket
from noetl.runtime.settings.signed_heads import HeadBucket
from noetl.testing.servers.s3 import running_s3

pytestmark = pytest.mark.service


async def test_a_head_is_put_under_its_lock_and_comes_back(tmp_path: Path) -> None:
    """INV-206."""
    signer = Signer(tmp_path / "keys")
    head = signer.sign(
        Head(ledger="l", shard=3, first_position=1, size=8, root="ab" * 32, link="cd" * 32, signed_at="now", key="")
    )
    (tmp_path / "s3").mkdir()
    with running_s3(tmp_path / "s3", "plain") as server:
        locking = {"x-amz-bucket-object-lock-enabled": "true"}
        given = {"endpoint": server.endpoint, "access_key": "noetl", "secret_key": "noetl-secret", "lock_days": 2}
        bucket = LockedBucket(HeadBucket.model_validate({"bucket": "heads", **given}))
        place = f"{server.endpoint}/heads/{bucket.key(head)}"
        async with aiohttp.ClientSession() as session:
            async with session.put(f"{server.endpoint}/heads", headers=locking) as answer:
                assert answer.status == 200
            await bucket.publish(head)
            async with session.get(place) as answer:
                (kept,) = read_heads(await answer.text())
                version, mode = answer.headers["x-amz-version-id"], answer.headers["x-amz-object-lock-mode"]
            assert (kept, mode) == (head, "COMPLIANCE")
            assert is_signed_by(kept, signer.public)
            async with session.delete(f"{place}?versionId={version}") as answer:
                assert answer.status == 403
        # A bucket that locks nothing takes no head: whoever relies on the lock must have one.
        with pytest.raises(Unavailable, match="S3 refused a signed head"):
            await LockedBucket(HeadBucket.model_validate({"bucket": "plain", **given})).publish(head)


async def test_a_head_of_the_same_size_hides_no_other_and_a_newer_version_does_not_fit_its_key(tmp_path: Path) -> None:
    """INV-206."""
    signer = Signer(tmp_path / "keys")
    first, second = (
        signer.sign(
            Head(ledger="l", shard=3, first_position=1, size=8, root=root, link="cd" * 32, signed_at="now", key="")
        )
        for root in ("ab" * 32, "ef" * 32)
    )
    (tmp_path / "s3").mkdir()
    with running_s3(tmp_path / "s3", "plain") as server:
        given = {"endpoint": server.endpoint, "access_key": "noetl", "secret_key": "noetl-secret", "lock_days": 2}
        bucket = LockedBucket(HeadBucket.model_validate({"bucket": "heads", **given}))
        async with aiohttp.ClientSession() as session:
            locking = {"x-amz-bucket-object-lock-enabled": "true"}
            async with session.put(f"{server.endpoint}/heads", headers=locking) as answer:
                assert answer.status == 200
            for head in (first, second):
                await bucket.publish(head)
            for head in (first, second):
                async with session.get(f"{server.endpoint}/heads/{bucket.key(head)}") as answer:
                    assert read_heads(await answer.text()) == [head]
            # Whoever has the key of the bucket puts the second head over the first.
            place = f"{server.endpoint}/heads/{bucket.key(first)}"
            async with session.put(place, data=second.line()) as answer:
                assert answer.status == 200
            async with session.get(place) as answer:
                assert sha256(await answer.read()).hexdigest() not in bucket.key(first)
            async with session.get(f"{server.endpoint}/heads?versions&prefix={bucket.key(first)}") as answer:
                *_, oldest = re.findall(r"<VersionId>(.*?)</VersionId>", await answer.text())
            async with session.get(f"{place}?versionId={oldest}") as answer:
                kept = await answer.text()
            assert read_heads(kept) == [first]
            assert sha256(kept.encode()).hexdigest() in bucket.key(first)


def test_the_request_asks_for_a_lock_that_its_signature_covers() -> None:
    at = datetime(2026, 11, 18, 7, tzinfo=UTC)
    given = {"bucket": "heads", "access_key": "key", "secret_key": "secret", "lock_days": 2}
    head = Head(ledger="l", shard=3, first_position=1, size=8, root="r", link="k", signed_at="now", key="")
    url, headers = LockedBucket(HeadBucket.model_validate(given), lambda: at)._request(head, b"{}")
    digest = sha256(head.line().encode()).hexdigest()
    assert url == f"https://s3.us-east-1.amazonaws.com/heads/heads/l/03/0000000000000000008-{digest}.json"
    assert headers["x-amz-object-lock-mode"] == "COMPLIANCE"
    assert headers["x-amz-object-lock-retain-until-date"] == "2026-11-20T07:00:00Z"
    assert "x-amz-object-lock-mode;x-amz-object-lock-retain-until-date" in headers["authorization"]
    with pytest.raises(ConfigError, match="secret_key is missing"):
        LockedBucket(HeadBucket(bucket="heads"))
