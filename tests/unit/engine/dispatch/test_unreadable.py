"""Executions that cannot be read, and stores that are away while work is handed out: no other work suffers from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.dispatch.lost_attempts import MAX_ATTEMPTS
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import Corrupt, Erased, NoetlError, PayloadMissing, Unavailable
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook

PLAIN = playbook("""
workflow:
  - step: work
    tool: {kind: python, code: result = 1}
""")
LARGE = playbook(f"""
workload: {{text: {"x" * 100_000}}}
workflow:
  - step: work
    tool: {{kind: python, code: result = 1}}
""")
FAMILY = playbook("""
workflow:
  - step: call
    tool: {kind: playbook, path: tests/large}
""")


class Failing(MemoryPayloadStore):
    """A store whose objects of executions cannot be read while there is a problem."""

    problem: NoetlError | None = None

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Fail, or return the bytes."""
        if self.problem is not None and ref.media_type == "application/vnd.noetl.fields+json":
            raise self.problem
        return await super().fetch(scope, ref)


@pytest.fixture
def payloads() -> Failing:
    return Failing()


@pytest.fixture
async def playbooks(tmp_path: Path, payloads: Failing) -> AsyncIterator[MemoryPlaybooks]:
    async with open_memory_playbooks(tmp_path, payloads) as playbooks:
        yield playbooks
        payloads.problem = None


def dispatch_of(playbooks: MemoryPlaybooks) -> LocalDispatch:
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    assert isinstance(dispatch, LocalDispatch)
    return dispatch


async def types_of(playbooks: MemoryPlaybooks, execution_id: int) -> list[str]:
    return [event["event_type"] for event in await playbooks.events(execution_id)]


async def lose_both(playbooks: MemoryPlaybooks) -> None:
    """Let two commands be lost so often that the next look fails both, which takes a decision."""
    for lost in range(MAX_ATTEMPTS):
        assert len(await dispatch_of(playbooks).claim("w", 2, 0.0)) == 2
        playbooks.clock.pass_by(10_000)
        if lost < MAX_ATTEMPTS - 1:
            assert await playbooks.engine.reaper.sweep() == 2


UNREADABLE = [Corrupt("the bytes are others"), Erased("the key is gone"), PayloadMissing("there is no object")]


@pytest.mark.parametrize("problem", UNREADABLE, ids=lambda one: one.code)
async def test_an_execution_that_cannot_be_read_ends_and_keeps_none_from_being_looked_at(
    playbooks: MemoryPlaybooks, payloads: Failing, problem: NoetlError
) -> None:
    """INV-33: the reaper meets the broken one first, and takes back what another's worker lost all the same."""
    broken = (await playbooks.begin(LARGE)).execution_id
    sound = (await playbooks.begin(PLAIN)).execution_id
    await lose_both(playbooks)
    payloads.problem = problem
    async with playbooks.beside() as other:  # which has to read
        await other.engine.reaper.sweep()
        assert (await types_of(playbooks, broken))[-1] == "execution.failed"
        assert (await types_of(playbooks, sound))[-1] == "playbook.failed"
        assert await other.engine._stores.running.head(playbooks.scope, broken) is None


async def test_a_store_that_is_away_for_one_keeps_the_reaper_from_no_other_and_ends_nothing(
    playbooks: MemoryPlaybooks, payloads: Failing
) -> None:
    """INV-182"""
    broken = (await playbooks.begin(LARGE)).execution_id
    sound = (await playbooks.begin(PLAIN)).execution_id
    await lose_both(playbooks)
    payloads.problem = Unavailable("the store does not answer")
    async with playbooks.beside() as other:
        await other.engine.reaper.sweep()
        assert "execution.failed" not in await types_of(playbooks, broken)
        assert (await types_of(playbooks, sound))[-1] == "playbook.failed"


async def test_an_execution_that_cannot_be_read_can_be_cancelled(playbooks: MemoryPlaybooks, payloads: Failing) -> None:
    """INV-33"""
    broken = (await playbooks.begin(LARGE)).execution_id
    payloads.problem = Corrupt("the bytes are others")
    async with playbooks.beside() as other:
        await other.engine.cancel(playbooks.scope, broken, reason="no", by="me")
    assert (await types_of(playbooks, broken))[-1] == "execution.cancelled"


@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
async def test_a_parent_goes_on_without_a_child_that_cannot_be_read(
    playbooks: MemoryPlaybooks, payloads: Failing, ended: bool
) -> None:
    """INV-33: neither a child that is met first by who wants to work on it, nor one whose end nobody told its parent."""
    await playbooks.register(LARGE.replace("tests/it", "tests/large"))
    parent = (await playbooks.begin(FAMILY)).execution_id
    await playbooks.engine.children.settled()
    if ended:
        playbooks.engine.executions.on_ended = lambda scope, state: None  # its process died before
        (grant,) = await dispatch_of(playbooks).claim("w", 1, 0.0)
        report = CommandEnded(command_id=grant.command_id, attempt=1, status="ok")
        await dispatch_of(playbooks).complete(grant, report, worker="w", take_next=False)
    payloads.problem = Corrupt("the bytes are others")
    playbooks.clock.pass_by(10_000)
    async with playbooks.beside() as other:
        assert await dispatch_of(other).claim("w", 1, 0.0) == []
        await other.engine.reaper.sweep()
        await other.engine.children.settled()
    (failed,) = await playbooks.events(parent, "command.failed")
    assert "the bytes are others" in failed["error"]
    assert (await types_of(playbooks, parent))[-1] == "playbook.failed"


async def test_a_claim_whose_execution_cannot_be_read_now_is_not_recorded(
    playbooks: MemoryPlaybooks, payloads: Failing
) -> None:
    """INV-182: no attempt is lost to a store that is away, and others in the same claim are handed out."""
    broken = (await playbooks.begin(LARGE)).execution_id
    sound = (await playbooks.begin(PLAIN)).execution_id
    payloads.problem = Unavailable("the store does not answer")
    async with playbooks.beside() as other:
        dispatch = dispatch_of(other)
        (grant,) = await dispatch.claim("w", 2, 0.0)
        assert grant.execution_id == sound
        with pytest.raises(Unavailable):
            await dispatch.claim("w", 2, 0.0)
        assert "command.claimed" not in await types_of(playbooks, broken)
        payloads.problem = None
        (grant,) = await dispatch.claim("w", 2, 0.0)
        assert (grant.execution_id, grant.attempt) == (broken, 1)


async def test_a_claim_ends_an_execution_that_can_never_be_read(playbooks: MemoryPlaybooks, payloads: Failing) -> None:
    """INV-33: it would be the first to be handed out for ever."""
    broken = (await playbooks.begin(LARGE)).execution_id
    payloads.problem = Corrupt("the bytes are others")
    async with playbooks.beside() as other:
        assert await dispatch_of(other).claim("w", 2, 0.0) == []
    assert (await types_of(playbooks, broken))[-1] == "execution.failed"
