"""Makes the proof of an execution: its events, live or archived, and the hashes from the trees."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.errors import NotFound
from noetl.ledger.chain.heads import Head
from noetl.ledger.chain.proof import Proof, ProvenEvent
from noetl.ledger.chain.trees import Trees
from noetl.ledger.port import LedgerReader
from noetl.model.event import ACCEPTED_FIELDS, Event, to_json
from noetl.model.stream import Scope, execution_stream


async def prove_execution(
    history: LedgerReader, trees: Trees, scope: Scope, execution_id: int, heads: Sequence[Head] = ()
) -> Proof:
    """Prove the events of an execution under the newest head of its shard, or of those given."""
    shard = execution_stream(scope, execution_id).shard
    events = [event async for event in history.read_execution(scope, execution_id)]
    if not events:
        raise NotFound(f"there is no execution {execution_id} in {scope.tenant_id}/{scope.organization_id}")
    head = await _head(trees, shard, heads)
    first = (await trees.links.chained_from())[shard]
    if events[0].position < first:
        raise NotFound(
            f"execution {execution_id} began at position {events[0].position} of shard {shard}, before links were kept there"
            f" (from {first} on)"
        )
    if head is None or head.last_position < events[-1].position:
        raise NotFound(
            f"no signed head covers position {events[-1].position} of shard {shard} yet",
            hint="a server signs heads by itself; `noetl notary --once` does it now",
        )
    paths = await trees.paths(head, [event.position for event in events])
    return Proof(
        execution_id=str(execution_id),
        head=head,
        events=[
            ProvenEvent(position=event.position, event=_said(event), path=[one.hex() for one in path])
            for event, path in zip(events, paths, strict=True)
        ],
    )


async def _head(trees: Trees, shard: int, heads: Sequence[Head]) -> Head | None:
    if not heads:
        return await trees.newest(shard)
    own = [head for head in heads if head.shard == shard]
    return max(own, key=lambda head: head.size, default=None)


def _said(event: Event) -> dict[str, object]:
    return {name: value for name, value in to_json(event).items() if name not in ACCEPTED_FIELDS}
