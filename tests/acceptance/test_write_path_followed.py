"""Who changes the write path of a database: servers by their setting, commands only when they were told to. INV-136."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.acceptance.hello_loop import hello_loop
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import Processes, line, processes_in

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

WAY = "NOETL_EVENT_STORE__WRITE_PATH"
FACT = {"event_type": "business.seen", "aggregate_id": "thing"}
REFUSED_SECONDS = 5.0
PATIENCE = 60.0


@pytest.fixture
def processes(noetl: Noetl, tmp_path: Path) -> Iterator[Processes]:
    """Starts roles in processes of their own; none outlives the test."""
    (tmp_path / "hello.yaml").write_text(hello_loop(3))
    with processes_in(tmp_path) as processes:
        yield processes


def call(url: str, body: Any = None) -> tuple[int, Any]:
    """Call a route and return its status and its JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        return refused.code, json.load(refused)


def url_of(server: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Return where a server listens, and what it said before."""
    said = []
    while not (told := line(server)).startswith("listening on "):
        assert told, "the server ended"
        said.append(told)
    return told.removeprefix("listening on "), said


def lines_with(log: Path, words: str, level: str, count: int) -> list[str]:
    """Look until a log has so many lines of a level with these words, and return them."""
    deadline = time.monotonic() + PATIENCE
    while len(found := [one for one in log.read_text().splitlines() if words in one and f" {level} " in one]) < count:
        assert time.monotonic() < deadline, log.read_text()
    assert len(found) == count, found
    return found


def test_a_command_follows_the_database_unless_it_is_told_otherwise(
    noetl: Noetl, processes: Processes, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_events(monkeypatch, nats_url, stream_prefix)
    server = processes.begin("server", "--port", "0", "--workers-slots", "1", **{WAY: "stream"})
    url, said = url_of(server)
    assert said[0] == "the write path is now stream (was ledger), for every process of this database"
    assert "an event counts as durable when NATS acknowledges it" in said[1]
    others = [processes.begin("worker", "--slots", "1"), processes.begin("scheduler")]
    for one in others:
        assert line(one)

    code, _, errors = noetl("run", "hello.yaml", "-q")
    assert (code, "the write path is now" in errors) == (0, False), errors
    assert "an event counts as durable when NATS acknowledges it" in errors
    assert call(f"{url}/api/health")[1]["write_path"] == "stream"

    monkeypatch.setenv(WAY, "ledger")
    code, _, errors = noetl("run", "hello.yaml", "-q")
    assert code == 0, errors
    told = [one for one in errors.splitlines() if "write path" in one]
    assert told == ["warning: the write path is now ledger (was stream), for every process of this database"]
    words = "the write path is now ledger (was stream)"
    [seen] = lines_with(processes.log_of(server), words, "WARNING", 1)
    assert seen.endswith(f"{words}; this process is set to stream")
    for one in others:
        [seen] = lines_with(processes.log_of(one), words, "WARNING", 1)
        assert seen.endswith(f"{words}; this process is set to ledger")
    assert call(f"{url}/api/health")[1]["write_path"] == "ledger"
    status, recorded = call(f"{url}/api/events", FACT)
    assert (status, recorded["stream_version"]) == (201, 1)


def test_a_server_without_a_stream_refuses_to_write_and_recovers_when_the_way_is_back(
    noetl: Noetl, processes: Processes, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = processes.begin("server", "--port", "0")
    url, _ = url_of(server)
    log = processes.log_of(server)
    assert call(f"{url}/api/events", FACT)[0] == 201
    mirror_events(monkeypatch, nats_url, stream_prefix)
    monkeypatch.setenv(WAY, "stream")
    code, _, errors = noetl("run", "hello.yaml", "-q")
    assert (code, "the write path is now stream (was ledger)" in errors) == (0, True), errors

    [warned] = lines_with(log, "the write path is now stream (was ledger); this process is set to ledger", "WARNING", 1)
    assert "can lose up to two minutes of acknowledged facts" in warned
    [said] = lines_with(log, "event_store.distribution_backend is postgres", "ERROR", 1)
    assert "event_store.connection.url" in said
    status, health = call(f"{url}/api/health")
    assert (status, health["status"], health["database"], health["write_path"]) == (503, "unavailable", "ok", "stream")
    assert "event_store.distribution_backend is postgres" in health["reason"]
    for path, body in (("events", FACT), ("execute", {"path": "demo/hello"})):
        began = time.monotonic()
        status, problem = call(f"{url}/api/{path}", body)
        assert time.monotonic() - began < REFUSED_SECONDS
        assert status == 503, problem
        assert "event_store.distribution_backend is postgres" in problem["detail"]
        assert "event_store.connection.url" in problem["hint"]
    code, shown, _ = noetl("stream", "status", "--json")
    assert (code, json.loads(shown)["writes"]["unpublished_events"]) == (0, 0)

    monkeypatch.setenv(WAY, "ledger")
    code, _, errors = noetl("run", "hello.yaml", "-q")
    assert code == 0, errors
    lines_with(log, "the write path is now ledger (was stream); this process is set to ledger", "WARNING", 1)
    status, health = call(f"{url}/api/health")
    assert (status, health["status"], health["reason"]) == (200, "ok", None)
    assert call(f"{url}/api/events", FACT)[0] == 201
    assert call(f"{url}/api/execute", {"path": "demo/hello"})[0] == 201


def test_a_server_applies_its_default_and_a_command_without_a_stream_says_what_it_lacks(
    noetl: Noetl, processes: Processes, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as through:
        mirror_events(through, nats_url, stream_prefix)
        through.setenv(WAY, "stream")
        assert noetl("run", "hello.yaml", "-q")[0] == 0
    code, shown, errors = noetl("run", "hello.yaml", "-q")
    assert (code, shown) == (2, "")
    assert "this database is in write path stream" in errors
    assert "event_store.distribution_backend is postgres, and event_store.connection.url is not set" in errors
    assert "set event_store.distribution_backend to nats-jetstream and event_store.connection.url" in errors
    code, shown, _ = noetl("stream", "status", "--json")
    assert (code, json.loads(shown)["writes"]["write_path"]) == (0, "stream"), "it changed nothing"

    mirror_events(monkeypatch, nats_url, stream_prefix)
    url, said = url_of(processes.begin("server", "--port", "0"))
    assert said == ["the write path is now ledger (was stream), for every process of this database"]
    assert call(f"{url}/api/health")[1]["write_path"] == "ledger"
