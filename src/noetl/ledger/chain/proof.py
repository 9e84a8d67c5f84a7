"""Proofs that events stood in the ledger: a document that another machine checks with a published head and no database.

A proof holds the events of one execution as their leaves are made of them, and for each the hashes that lead from it to
the root of a head: at most 64, which say nothing about other events to anybody who does not know these byte for byte. It
proves that the events stood there unchanged when the head was signed, not that the execution had no others.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noetl.errors import NoetlError
from noetl.ledger.chain.heads import Head, is_signed_by, tree_leaf
from noetl.ledger.normalizer import leaf_of
from noetl.model.event import Draft, draft_from_json
from noetl.model.merkle import MOST_HASHES, root_from_path

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
