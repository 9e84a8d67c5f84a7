"""`noetl dev --nats`: every write path on the NATS server it starts itself, whose streams outlive it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.hello_loop import hello_loop
from tests.acceptance.processes import processes_in

Noetl = Callable[..., tuple[int, str, str]]
Begin = Callable[..., "Dev"]

pytestmark = pytest.mark.service

PATIENCE = 60
FACTS = 20


class Dev:
    """`noetl dev --nats` as a process, and what it said until its playbook was registered."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self.said: list[str] = []
        self.url = ""
        assert self.process.stdout is not None
        for one in self.process.stdout:
            self.said.append(one.rstrip("\n"))
            if one.startswith("listening on "):
                self.url = one.split()[-1]
            if self.url and "demo/hello" in one:
                break

    def call(self, path: str, body: Any = None, **headers: str) -> Any:
        """Call a route and return its JSON."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, sent), timeout=PATIENCE) as answer:
            return json.load(answer)

    def record(self, number: int) -> dict[str, Any]:
        """Record a fact and return the answer."""
        fact = {"event_type": "business.seen", "aggregate_id": "thing", "context": {"n": number}}
        answer: dict[str, Any] = self.call("/api/events", fact)
        return answer

    def reads_back(self, recorded: dict[str, Any]) -> Any:
        """Return what a fact says, read with its writer's token."""
        place = f"/api/events/{recorded['event_id']}?execution_id={recorded['execution_id']}"
        return self.call(place, Noetl_Read_Token=recorded["read_token"])["context"]

    def ended(self) -> None:
        """Stop it as a user does, and see that it ends well."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts it in a home of the test's own; nothing of it outlives the test."""
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "hello.yaml").write_text(hello_loop(6))
    command = ("dev", "--nats", "--port", "0", str(tmp_path / "playbooks"))
    with processes_in(tmp_path) as processes:

        def begun(**environ: str) -> Dev:
            process = processes.begin(*command, **environ)
            return Dev(process, processes.log_of(process))

        yield begun
    end_server(tmp_path)


def end_server(folder: Path) -> None:
    """End a NATS server that a killed one has left behind."""
    noted = folder / ".noetl" / "nats" / "nats.pid"
    if noted.exists() and (pid := int(noted.read_text() or 0)):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"nats-server" in command.read_bytes():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def own_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """Settings that name a port of this machine, so that other commands find the server there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"nats://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("NOETL_EVENT_STORE__DISTRIBUTION_BACKEND", "nats-jetstream")
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", url)
    return url


@pytest.mark.parametrize("way", ["ledger", "shadow", "stream"])
def test_every_write_path_runs_on_the_server_it_starts(
    way: str, noetl: Noetl, begin: Begin, own_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """INV-129."""
    monkeypatch.setenv("NOETL_EVENT_STORE__WRITE_PATH", way)
    dev = begin()
    assert dev.url, dev.log.read_text()
    assert dev.said[0] == f"NATS on {own_url}, its streams in .noetl/nats"
    assert dev.call("/api/health")["write_path"] == ("stream" if way == "stream" else "ledger")
    assert [dev.reads_back(dev.record(number)) for number in range(3)] == [{"n": number} for number in range(3)]
    started = dev.call("/api/execute", {"path": "demo/hello"})["execution_id"]
    assert dev.call(f"/api/executions/{started}?wait=30")["status"] == "COMPLETED"
    code, shown, errors = noetl("stream", "status", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(shown)["state"]["messages"] > 0
    dev.ended()
    assert (tmp_path / ".noetl" / "nats" / "data").is_dir()
    code, shown, _ = noetl("stream", "divergence", "--json")
    told = json.loads(shown)
    assert (code, told["compared"]) == ((0, told["written"]) if way == "shadow" else (4, 0))
    assert (told["compared"] > 0) == (way == "shadow")


def test_what_it_had_acknowledged_survives_its_death(
    noetl: Noetl, begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """INV-129."""
    # The settings name no server at all: it finds a port by itself, another one each time.
    monkeypatch.setenv("NOETL_EVENT_STORE__WRITE_PATH", "stream")
    monkeypatch.setenv("NOETL_EVENT_STORE__LEASE_SECONDS", "2")
    # Nothing comes to the ledger, so what it acknowledges is in its streams alone.
    first = begin(NOETL_FAULT="materialize.before_write=raise")
    recorded = [first.record(number) for number in range(FACTS)]
    assert {one["position"] for one in recorded} == {None}
    first.process.kill()
    first.process.wait()
    second = begin(NOETL_EVENT_STORE__CONNECTION__REQUIRE_FSYNC="true")
    assert second.url, second.log.read_text()
    assert "sync_interval: always" in (tmp_path / ".noetl" / "nats" / "nats.conf").read_text()
    assert [second.reads_back(one) for one in recorded] == [{"n": number} for number in range(FACTS)]
    monkeypatch.setenv("NOETL_EVENT_STORE__DISTRIBUTION_BACKEND", "nats-jetstream")
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", second.said[0].split()[2].rstrip(","))
    assert noetl("stream", "lost")[0] == 0
    code, shown, errors = noetl("verify", "--all")
    assert code == 0, shown + errors
    second.ended()


def test_a_second_one_in_the_same_home_and_a_server_elsewhere_are_refused(
    noetl: Noetl, begin: Begin, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = begin()
    second = begin()
    assert (second.url, second.process.wait(PATIENCE)) == ("", 3)
    assert "another process runs NATS with the streams in .noetl/nats" in second.log.read_text()
    assert dev.reads_back(dev.record(1)) == {"n": 1}
    elsewhere = begin(NOETL_HOME="elsewhere")
    assert (elsewhere.url, elsewhere.process.wait(PATIENCE)) == ("", 3)
    assert f"cannot listen on {own_url.removeprefix('nats://')}" in elsewhere.log.read_text()
    dev.ended()
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", "nats://nats.example:4222")
    code, _, errors = noetl("dev", "--nats", "--port", "0")
    assert (code, "names a server elsewhere" in errors) == (2, True)
    monkeypatch.setenv("NOETL_EVENT_STORE__WRITE_PATH", "strem")
    monkeypatch.delenv("NOETL_EVENT_STORE__CONNECTION__URL")
    code, _, errors = noetl("dev", "--nats", "--port", "0")
    assert (code, "event_store.write_path" in errors) == (2, True)
