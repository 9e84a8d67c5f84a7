"""The platform goes away under running work and comes back: the work waits, says so, and loses no attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from noetl.engine.dispatch.why.explanation import why
from noetl.engine.platform import waits
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.testing.attacks.outages import FullDisk, Gate, LostDirectory, LostLedger
from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.short_leases import until


@pytest.fixture(autouse=True)
def tells_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what waits say so after its first pause, for nobody to wait for it."""
    monkeypatch.setattr(waits, "TOLD_AFTER_SECONDS", 0.0)


LARGE = 200_000
"""Bytes of a result that does not stand in its event."""


def loop(gate: Gate, mode: str = "parallel") -> str:
    return playbook(f"""
    workflow:
      - step: each
        loop: {{in: [0, 1, 2, 3, 4, 5], iterator: n, spec: {{mode: {mode}, max_in_flight: 1, frame: {{max_rows: 2, max_attempts: 1}}}}}}
        tool: {{kind: shell, command: "[ {{{{ n }}}} -ne 2 ] || {{ {gate.command}; }}"}}
    """)


def plain(gate: Gate) -> str:
    return playbook(f"""
    workflow:
      - step: work
        tool: {{kind: shell, command: "{gate.command}; head -c {LARGE} /dev/zero | tr '\\\\0' x"}}
    """)


async def kinds(playbooks: MemoryPlaybooks, execution_id: int) -> Counter[str]:
    return Counter(event["event_type"] for event in await playbooks.events(execution_id))


async def told(playbooks: MemoryPlaybooks, execution_id: int) -> str:
    """Wait until an execution says that it waits, and return what `why` says of it then."""

    async def stalled() -> bool:
        return bool(await playbooks.events(execution_id, "command.stalled"))

    await until(stalled, "a word about the outage")
    said = await why(playbooks.ledger, None, None, playbooks.scope, execution_id)
    return " ".join(sentence.text for sentence in said.sentences)


def assert_one_attempt(found: Counter[str]) -> None:
    """See that the only command of an execution was handed out once and lost nothing."""
    lost = ("command.attempt_failed", "command.abandoned", "command.returned", "frame.attempt_failed", "frame.failed")
    assert not any(found[name] for name in lost), found
    assert found["command.claimed"] + found["command.issued"] == 2


async def assert_untouched(playbooks: MemoryPlaybooks, execution_id: int, step: str, part: str) -> None:
    """See that the execution ended well in its first attempt, and says afterwards what it waited for."""
    ended = await playbooks.finished(execution_id)
    assert ended.status == "COMPLETED", ended.error
    found = await kinds(playbooks, execution_id)
    assert (found["command.stalled"], found["command.resumed"]) == (1, 1)
    assert_one_attempt(found)
    said = await why(playbooks.ledger, None, None, playbooks.scope, execution_id, step=step)
    assert f"attempt 1 had to wait for the {part}" in " ".join(sentence.text for sentence in said.sentences)


@pytest.mark.parametrize("kind", ["loop", "step"])
async def test_a_store_that_goes_away_is_waited_for(tmp_path: Path, kind: str) -> None:
    """INV-182: neither a frame nor a step loses an attempt, and no error names a file."""
    gate, root = Gate(tmp_path), tmp_path / "store"
    store = ObjectPayloadStore(LocalBucket(root))
    async with open_memory_playbooks(tmp_path / "home", store) as playbooks:
        state = await playbooks.begin(loop(gate) if kind == "loop" else plain(gate))
        await playbooks.worker()
        await gate.reached()
        LostDirectory(root).take_away()
        await gate.open()
        said = await told(playbooks, state.execution_id)
        assert "waits for the payload store since" in said
        assert not root.exists(), "a store that is away is not made anew"
        LostDirectory(root).bring_back()
        await assert_untouched(playbooks, state.execution_id, "each" if kind == "loop" else "work", "payload store")


async def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """INV-182."""
    gate, bucket = Gate(tmp_path), FullDisk(tmp_path / "store")
    async with open_memory_playbooks(tmp_path / "home", ObjectPayloadStore(bucket)) as playbooks:
        state = await playbooks.begin(loop(gate, "sequential"))
        await playbooks.worker()
        await gate.reached()
        bucket.is_full = True
        await gate.open()
        assert "No space left on device" in await told(playbooks, state.execution_id)
        bucket.is_full = False
        await assert_untouched(playbooks, state.execution_id, "each", "payload store")


@pytest.mark.parametrize("kind", ["loop", "step"])
async def test_a_ledger_that_goes_away_is_waited_for(tmp_path: Path, kind: str) -> None:
    """INV-182: the end of a frame and that of a step are sent again until they are recorded, by the same attempt."""
    gate = Gate(tmp_path)
    async with open_memory_playbooks(tmp_path / "home", make_ledger=LostLedger) as playbooks:
        ledger = playbooks.ledger
        assert isinstance(ledger, LostLedger)
        state = await playbooks.begin(loop(gate) if kind == "loop" else plain(gate))
        await playbooks.worker()
        await gate.reached()
        ledger.is_away = True
        await gate.open()
        # A worker that does not wait is refused with its report and when it gives back, and asks for nothing any more.
        await ledger.tried(4)
        ledger.is_away = False
        ended = await playbooks.finished(state.execution_id)
        assert ended.status == "COMPLETED", ended.error
        assert_one_attempt(await kinds(playbooks, state.execution_id))


async def test_a_worker_that_stops_while_it_waits_hands_its_work_back(tmp_path: Path) -> None:
    """INV-181, INV-182: it does not wait for the store to come back, and what it had costs no attempt."""
    gate, root = Gate(tmp_path), tmp_path / "store"
    async with open_memory_playbooks(tmp_path / "home", ObjectPayloadStore(LocalBucket(root))) as playbooks:
        state = await playbooks.begin(loop(gate))
        await playbooks.worker()
        await gate.reached()
        LostDirectory(root).take_away()
        await gate.open()
        await told(playbooks, state.execution_id)
        async with asyncio.timeout(10):
            await playbooks.close()
        found = await kinds(playbooks, state.execution_id)
        assert (found["command.returned"], found["frame.abandoned"], found["frame.failed"]) == (1, 1, 0)
        LostDirectory(root).bring_back()
        async with playbooks.beside() as other:
            await other.worker()
            await asyncio.gather(gate.reached(), gate.open())
            ended = await other.finished(state.execution_id)
    assert (ended.status, ended.results["each"].data["completed"]) == ("COMPLETED", 6), ended.error


async def test_an_execution_that_is_cancelled_ends_the_wait(tmp_path: Path) -> None:
    """INV-182: who waits holds its lease by heartbeats as ever, and stops with it."""
    gate, root = Gate(tmp_path), tmp_path / "store"
    async with open_memory_playbooks(tmp_path / "home", ObjectPayloadStore(LocalBucket(root))) as playbooks:
        state = await playbooks.begin(plain(gate))
        await playbooks.worker()
        await gate.reached()
        LostDirectory(root).take_away()
        await gate.open()
        await told(playbooks, state.execution_id)
        await playbooks.engine.cancel(playbooks.scope, state.execution_id, reason="enough", by="tests")
        async with asyncio.timeout(10):
            await playbooks.close()
        assert (await playbooks.finished(state.execution_id)).status == "CANCELLED"
        LostDirectory(root).bring_back()


async def test_errors_of_users_code_stay_the_works(tmp_path: Path) -> None:
    """INV-182: a file that users' code does not find, or a disk of theirs that is full, fails the work at once."""
    async with open_memory_playbooks(tmp_path / "home") as playbooks:
        for code, error in (("open('/nowhere/at/all')", "FileNotFoundError"), ("raise OSError(28, 'full')", "OSError")):
            state = await playbooks.run(
                playbook(f"""
                workflow: [{{step: work, tool: {{kind: python, code: "{code}"}}}}]
                """)
            )
            assert (state.status, error in (state.error or "")) == ("FAILED", True), state.error
            assert not await playbooks.events(state.execution_id, "command.stalled")
