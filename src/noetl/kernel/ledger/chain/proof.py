"""Proofs that events stood in the ledger: made from the live or archived events and the trees of an execution's
shard.

Another machine checks a proof with a published head and without a database. It holds the events of one execution as
their leaves, and for each the hashes that lead from it to the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noetl.errors import NoetlError, NotFound
from noetl.kernel.ledger.chain.heads import Head, is_signed_by, tree_leaf
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.normalizer import leaf_of
from noetl.kernel.ledger.port import LedgerReader
from noetl.model.event import ACCEPTED_FIELDS, Draft, Event, draft_from_json, to_json
from noetl.model.merkle import MOST_HASHES, root_from_path
from noetl.model.stream import Scope, execution_stream

FORMAT: Final = "noetl.proof/1"


class ProvenEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its way to the root."""

    position: int
    event: dict[str, Any]
    """Its fields as a producer said them: all but shard, position, stream version and time of ingestion."""
    path: list[str]
    """The hashes from the leaf up, in hex."""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one execution, and the head that they lead to."""

    format: Literal["noetl.proof/1"] = FORMAT
    execution_id: str
    head: Head
    events: list[ProvenEvent]


def problems_of(proof: Proof, heads: list[Head], public: Ed25519PublicKey) -> list[str]:
    """Return why a proof does not hold against heads that were kept, or nothing."""
    claimed = proof.head
    place = f"the head over {claimed.size} events of shard {claimed.shard}"
    same = [
        head for head in heads if (head.ledger, head.shard, head.size) == (claimed.ledger, claimed.shard, claimed.size)
    ]
    if not same:
        return [f"{place} of ledger {claimed.ledger} is not among the heads that were given"]
    head = same[0]
    if not is_signed_by(head, public):
        return [f"{place} is not signed by the given key"]
    if any((one.root, one.link, one.first_position) != (head.root, head.link, head.first_position) for one in same):
        return [f"{place} is given with two different roots"]
    if not proof.events:
        return ["the proof has no events"]
    found = []
    if len({one.position for one in proof.events}) < len(proof.events):
        found.append("two events of the proof have one position")
    if len({(one.event.get("tenant_id"), one.event.get("organization_id")) for one in proof.events}) > 1:
        found.append("the events of the proof belong to several organizations")
    return found + [problem for one in proof.events if (problem := _problem(proof, one, head)) is not None]


def _problem(proof: Proof, one: ProvenEvent, head: Head) -> str | None:
    name = f"event {one.event.get('event_id')} at position {one.position} of shard {head.shard}"
    if not f"{one.event.get('stream_id')}/".startswith(f"execution/{proof.execution_id}/"):
        return f"{name} is no event of execution {proof.execution_id}"
    if len(one.path) > MOST_HASHES:
        return f"{name} comes with {len(one.path)} hashes; no path has more than {MOST_HASHES}"
    try:
        draft = _draft(one.event)
        leaf = leaf_of(draft)
        path = [bytes.fromhex(text) for text in one.path]
    except (TypeError, ValueError, NoetlError) as problem:
        return f"{name} cannot be read: {problem}"
    if draft.stream.shard != head.shard:
        return f"{name} belongs to shard {draft.stream.shard}"
    if not head.first_position <= one.position <= head.last_position:
        return f"{name} is not under the head, which covers positions {head.first_position} to {head.last_position}"
    root = root_from_path(one.position - head.first_position, head.size, tree_leaf(one.position, leaf), path)
    if root is None or root.hex() != head.root:
        return f"{name} does not lead to the root of the head: it was changed, or stood somewhere else"
    return None


def _draft(fields: dict[str, Any]) -> Draft:
    """Read an event; a field that none has is refused, since the leaf would not cover it."""
    if unknown := fields.keys() - set(Draft.__struct_fields__):
        raise ValueError(f"events have no fields {', '.join(sorted(unknown))}")
    return draft_from_json(fields)


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
