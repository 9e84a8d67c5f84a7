"""The notary: makes the tree of each shard of its links and signs heads, outside every append.

It never signs what does not follow from the heads that were signed before, neither from the one that was published nor from the
one that the database has, and believes neither without its signature: a ledger that was rewritten is told, not notarized.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from noetl.errors import Corrupt, NoetlError, Unavailable
from noetl.ledger.chain.growing import grown
from noetl.ledger.chain.heads import Head, Signer, is_signed_by
from noetl.ledger.chain.trees import Trees
from noetl.model.event import time_text
from noetl.model.shard import SHARD_COUNT

Publish = Callable[[Head], Awaitable[None]]
_log = logging.getLogger(__name__)


class Notary:
    """Signs the heads of one ledger. `published` are the newest heads that stand elsewhere."""

    def __init__(
        self,
        trees: Trees,
        signer: Signer,
        publish: Publish,
        published: Mapping[int, Head],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._trees = trees
        self._signer = signer
        self._publish = publish
        self._published = dict(published)
        self._now = now
        self.refused: dict[int, NoetlError] = {}
        """Why the last round signed no head of a shard."""

    async def round(self) -> list[Head]:
        """Sign and publish a head of every shard that grew; one that cannot be signed is told at the end, and stops no other."""
        ledger = await self._trees.ledger()
        refused, found = dict[int, NoetlError](), list[Head]()
        for shard in range(SHARD_COUNT):
            try:
                head = await self._shard(ledger, shard)
            except Unavailable:
                # The database or the place of heads is away, for every shard alike. What was known stays known.
                self.refused |= refused
                raise
            except NoetlError as problem:
                refused[shard] = problem
            except Exception as problem:  # Whatever stands in the rows of one shard is that shard's alone.
                refused[shard] = Corrupt(f"no head of shard {shard} is signed: {type(problem).__name__}: {problem}")
            else:
                if head is not None:
                    found.append(head)
        self.refused = refused
        if refused:
            first, *others = refused.values()
            for other in others:
                _log.error("heads of the ledger are not signed: %s", other.message)
            raise first
        return found

    async def _shard(self, ledger: str, shard: int) -> Head | None:
        first = (await self._trees.links.chained_from())[shard]
        recorded, known = await self._trees.newest(shard), self._published.get(shard)
        before = [head for head in (recorded, known) if head is not None]
        for head in before:
            self._believe(head, ledger, shard, first)
        tree, link = await grown(self._trees, shard, first, before)
        if not tree.size:
            return None
        if any(head.size == tree.size for head in before):
            if recorded is not None and (known is None or known.size < recorded.size):
                # Signed by another notary, or by this one before it could tell anybody.
                await self._tell(recorded)
            return None
        head = self._signer.sign(
            Head(
                ledger=ledger,
                shard=shard,
                first_position=first,
                size=tree.size,
                root=tree.root().hex(),
                link=link.hex(),
                signed_at=time_text(self._now()),
                key="",
            )
        )
        await self._trees.sign(head)
        await self._tell(head)
        return head

    def _believe(self, head: Head, ledger: str, shard: int, first: int) -> None:
        """Refuse a head that was not signed here, or not as one of this shard."""
        if not any(is_signed_by(head, public) for public in self._signer.trusted()):
            raise Corrupt(
                f"a head over {head.size} events of shard {shard} is not signed by the notary's key: somebody put it there",
                hint="`noetl verify --all` names what differs; docs/proofs.md says how a key is changed",
            )
        if (head.ledger, head.shard, head.first_position) != (ledger, shard, first):
            raise Corrupt(
                f"a head over {head.size} events stands for shard {shard} of ledger {ledger} from position {first} on,"
                f" and was signed for shard {head.shard} of {head.ledger} from {head.first_position} on"
            )

    async def _tell(self, head: Head) -> None:
        await self._publish(head)
        self._published[head.shard] = head
