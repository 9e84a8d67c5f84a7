"""What is not the platform's does not answer: each try counts, and the last one fails the step; the platform is waited for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.lost_attempts import MAX_ATTEMPTS
from noetl.engine.platform import waits
from noetl.engine.tools.port import Credential
from noetl.engine.worker import worker
from noetl.errors import NotFound, OutsideUnavailable, Unavailable
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.services.credentials.redactor import Redactor
from noetl.testing.engines import memory
from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook

WITH_TOKEN = playbook("""
keychain: [{name: tok, kind: oauth2, scope: global, endpoint: "http://127.0.0.1:1/token"}]
workflow: [{step: work, tool: {kind: python, code: "result = 1"}}]
""")
WITH_CREDENTIAL = playbook("""
workflow: [{step: work, tool: {kind: http, url: "http://127.0.0.1:1/", auth: api}}]
""")


class AwaySecrets:
    """Secrets whose source does not answer so many times."""

    def __init__(self, problem: Exception, times: int) -> None:
        self.redaction = Redactor()
        self.asked = 0
        self._problem = problem
        self._times = times

    @property
    def credentials(self) -> AwaySecrets:
        """Itself."""
        return self

    def _ask(self) -> None:
        self.asked += 1
        if self.asked <= self._times:
            raise self._problem

    async def credential(self, name: str) -> Credential:
        """Find none, once there is an answer."""
        self._ask()
        raise NotFound(f"there is no credential {name}")

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give a token, once there is an answer."""
        if playbook.keychain:
            self._ask()
        return {"tok": {"access_token": "t"}} if playbook.keychain else {}

    async def secret(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Find none."""
        raise NotFound(f"there is no secret {entry.name}")


async def ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secrets: AwaySecrets, text: str
) -> tuple[str, str, Counter[str]]:
    """Run a playbook on a worker with these secrets: how it ended, why, and its events counted."""
    monkeypatch.setattr(memory, "NoSecrets", lambda: secrets)
    # Nobody waits for the next try, and what waits says so at once.
    monkeypatch.setattr(worker, "GIVE_BACK_SECONDS", 0.0)
    monkeypatch.setattr(waits, "TOLD_AFTER_SECONDS", 0.0)
    async with open_memory_playbooks(tmp_path) as playbooks:
        async with asyncio.timeout(30):
            state = await playbooks.run(text)
        return state.status, state.error or "", await kinds(playbooks, state.execution_id)


async def kinds(playbooks: MemoryPlaybooks, execution_id: int) -> Counter[str]:
    return Counter(event["event_type"] for event in await playbooks.events(execution_id))


async def test_a_token_server_that_stays_away_uses_the_attempts_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-33, INV-182: it is the user's, so the step fails with its words after the last attempt."""
    secrets = AwaySecrets(OutsideUnavailable("the token server answered with status 503"), 10**9)
    status, error, found = await ran(tmp_path, monkeypatch, secrets, WITH_TOKEN)
    assert (status, "status 503" in error) == ("FAILED", True), error
    assert (secrets.asked, found["command.attempt_failed"]) == (MAX_ATTEMPTS, MAX_ATTEMPTS - 1)
    assert not found["command.returned"] + found["command.stalled"]


@pytest.mark.parametrize(("text", "ends"), [(WITH_TOKEN, "COMPLETED"), (WITH_CREDENTIAL, "FAILED")])
async def test_a_database_that_is_away_when_secrets_are_looked_up_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, ends: str
) -> None:
    """INV-182: neither a keychain nor a tool's own lookup loses an attempt or fails the work for it."""
    secrets = AwaySecrets(Unavailable("the database does not answer"), 2)
    status, error, found = await ran(tmp_path, monkeypatch, secrets, text)
    assert (status, secrets.asked) == (ends, 3), error
    assert "does not answer" not in error
    assert (found["command.stalled"], found["command.resumed"]) == (1, 1)
    assert not found["command.attempt_failed"] + found["command.returned"]
