"""What a transition relies on: leases as they must be when it is written. The ledger locks and compares them."""

from __future__ import annotations

from typing import Any

from noetl.kernel.leases.kinds import Kind
from noetl.kernel.ledger.transition import Fence
from noetl.model.lease import Proof


def held(kind: Kind, proof: Proof) -> Fence:
    """Rely on a lease that is held under its attempt and token, and lasts."""
    return _fence(kind, proof.key, proof.attempt, proof.token, "held")


def expired(kind: Kind, proof: Proof) -> Fence:
    """Rely on a lease that ran out and that nobody has renewed or taken back since."""
    return _fence(kind, proof.key, proof.attempt, proof.token, "expired")


def free(kind: Kind, key: tuple[Any, ...], attempt: int) -> Fence:
    """Rely on a row that nobody holds and that was last granted under this attempt; 0 if never."""
    return _fence(kind, key, attempt, None, "free")


def _fence(kind: Kind, key: tuple[Any, ...], attempt: int, token: str | None, mode: Any) -> Fence:
    assert kind.fence is not None, f"changes of {kind.table} are not fenced"
    # Rows that outlive their execution are named without it.
    execution_id, name = key if len(key) > 1 else (0, *key)
    return Fence(kind.fence, execution_id, str(name), attempt, token, mode)
