"""How long the refusal of a guessed token waits."""

from __future__ import annotations

from noetl.api.access import refused_tokens
from noetl.api.access.refused_tokens import FORGET_SECONDS, FREE, MOST_SECONDS, RefusedTokens
from noetl.api.problems import TooMany, Unauthenticated

BAD = Unauthenticated("the token is unknown")


async def test_waits_grow_to_a_bound_and_are_forgotten_by_address() -> None:
    """INV-197."""
    now, waits = 100.0, list[float]()

    async def waited(seconds: float) -> None:
        waits.append(seconds)

    tokens = RefusedTokens(clock=lambda: now, wait=waited)
    answers = [await tokens.refused("a", str(n).encode(), BAD) for n in range(FREE + 8)]
    assert answers[:FREE] == [BAD] * FREE
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, MOST_SECONDS, MOST_SECONDS, MOST_SECONDS]
    last = answers[-1]
    assert isinstance(last, TooMany)
    assert last.details["retry_after"] == MOST_SECONDS
    assert await tokens.refused("b", b"0", BAD) is BAD
    now += FORGET_SECONDS + 1
    assert await tokens.refused("a", b"new", BAD) is BAD


async def test_addresses_and_waits_are_bounded() -> None:
    """INV-197."""
    tokens = RefusedTokens(clock=lambda: 0.0)
    for number in range(refused_tokens._MOST_ADDRESSES + 5):
        await tokens.refused(str(number), b"x", BAD)
    assert len(tokens._addresses) == refused_tokens._MOST_ADDRESSES
    tokens._waiting = refused_tokens.MOST_WAITING
    for number in range(FREE + 20):
        answer = await tokens.refused("a", str(number).encode(), BAD)
    assert isinstance(answer, TooMany), "and at once: this test does not wait"
