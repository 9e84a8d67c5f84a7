"""Manifests by the digest of their payload: fetched once, kept while they are used."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

KEPT = 4096
_decoder = msgspec.json.Decoder(Manifest)


class Manifests:
    """Reads manifests of one organization; they never change, so none is read twice."""

    def __init__(self, scope: Scope, payloads: PayloadStore) -> None:
        self._scope = scope
        self._payloads = payloads
        self._kept: OrderedDict[str, Manifest] = OrderedDict()

    async def get(self, refs: Iterable[PayloadRef]) -> dict[str, Manifest]:
        """Return manifests by the SHA-256 of their payloads."""
        wanted = {ref.sha256: ref for ref in refs}
        missing = [ref for digest, ref in wanted.items() if digest not in self._kept]
        found = await asyncio.gather(*(self._payloads.fetch(self._scope, ref) for ref in missing))
        answer = {digest: self._kept[digest] for digest in wanted if digest in self._kept}
        for ref, data in zip(missing, found, strict=True):
            answer[ref.sha256] = self._kept[ref.sha256] = _decoder.decode(data)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return answer
