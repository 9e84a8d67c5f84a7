"""The notary, connected: settings go in, one that signs heads comes out, or one that runs by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.errors import InputError, NoetlError
from noetl.kernel.ledger.chain.stored import Trees
from noetl.runtime.wiring import Runtime

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from noetl.kernel.ledger.chain.heads import Head
    from noetl.kernel.ledger.chain.notary import Notary
    from noetl.kernel.replay.chain import ChainCheck
    from noetl.runtime.metrics.notary import NotaryMetrics

_log = logging.getLogger(__name__)


async def notary_of(runtime: Runtime) -> Notary:
    """Return what signs the heads of a runtime's ledger and publishes them where the settings say."""
    from noetl.kernel.ledger.chain.heads import Signer
    from noetl.kernel.ledger.chain.notary import HeadFile, Notary
    from noetl.runtime.head_bucket import LockedBucket

    trees, own = Trees(runtime.database), runtime.settings.event_store.heads
    file = HeadFile(runtime.settings.head_directory, await trees.ledger())
    bucket = None if own.s3.bucket is None else LockedBucket(own.s3)

    async def publish(head: Head) -> None:
        # The file last: what is in it counts as published everywhere.
        if bucket is not None:
            await bucket.publish(head)
        await file.publish(head)

    return Notary(trees, Signer(runtime.settings.key_directory), publish, file.newest())


@asynccontextmanager
async def open_notary(runtime: Runtime, metrics: NotaryMetrics | None = None) -> AsyncIterator[None]:
    """Sign heads in the background for the time of the block, unless that is left to others."""
    if not runtime.settings.event_store.heads.in_server:
        yield
        return
    signing = asyncio.create_task(sign_on(runtime, metrics), name="noetl-notary")
    try:
        yield
    finally:
        signing.cancel()
        with suppress(asyncio.CancelledError):
            await signing


async def sign_on(runtime: Runtime, metrics: NotaryMetrics | None = None) -> None:
    """Sign round after round; what goes wrong, whatever it is, is logged, and tried again in the next."""
    every = runtime.settings.event_store.heads.every_seconds
    notary: Notary | None = None
    while True:
        await asyncio.sleep(every)
        try:
            notary = notary or await notary_of(runtime)
            await notary.round()
        except NoetlError as problem:
            _log.error("heads of the ledger are not signed: %s", problem.message)
        except Exception:
            # A task that ended here would be missed by nobody until the process ends.
            _log.exception("heads of the ledger are not signed")
        if notary is not None and metrics is not None:
            metrics.refused(len(notary.refused))


async def chain_check(runtime: Runtime, heads: Sequence[Path] = (), key: Path | None = None) -> ChainCheck:
    """Return what checks the chain against heads in files, those published here if none is named."""
    from noetl.kernel.ledger.chain.heads import PUBLIC_FILE
    from noetl.kernel.ledger.chain.notary import HeadFile
    from noetl.kernel.replay.chain import ChainCheck

    trees = Trees(runtime.database)
    found = heads_in(heads) if heads else HeadFile(runtime.settings.head_directory, await trees.ledger()).heads()
    own = runtime.settings.key_directory / PUBLIC_FILE
    path = key or (own if own.exists() else None)
    return ChainCheck(runtime.history, trees, found, None if path is None else public_key(path))


def heads_in(paths: Sequence[Path]) -> list[Head]:
    """Return the heads of files."""
    from noetl.kernel.ledger.chain.heads import read_heads

    return [head for path in paths for head in read_heads(_text(path).decode())]


def public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in a file."""
    from noetl.kernel.ledger.chain.heads import read_public_key

    return read_public_key(_text(path))


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
