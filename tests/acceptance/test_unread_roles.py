"""Roles whose output nobody reads any more: they go on working, and end as well as any other when they are told to. INV-145."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.hello_loop import hello_loop
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import Processes, line, processes_in

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

SECONDS = 30
"""Within which a role with nothing under way has ended."""


def leave(process: subprocess.Popen[str]) -> None:
    """Stop reading what a process says, as `head` does."""
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None


def ends_well(processes: Processes, *begun: subprocess.Popen[str]) -> None:
    """Tell roles to stop, and see that each drains in time and complains about nothing."""
    for process in begun:
        assert process.poll() is None, processes.log_of(process).read_text()
        process.send_signal(signal.SIGTERM)
    for process in begun:
        code, log = process.wait(SECONDS), processes.log_of(process).read_text()
        assert code == 0, log
        assert "Traceback" not in log


def call(url: str, body: Any = None) -> Any:
    """Call a route and return its JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def holds_a_shard(noetl: Noetl, of: str, process: subprocess.Popen[str]) -> None:
    """Ask until a relay or materializer has shards; its name tells which process it is."""

    def holders() -> set[str]:
        status = json.loads(noetl("stream", "status", "--json")[1])
        lines = status["shards"] if of == "relay" else (status["writes"] or {"shards": []})["shards"]
        return {one["holder"] or "" for one in lines}

    while not any(str(process.pid) in one.split("/") for one in holders()):
        assert process.poll() is None, f"the {of} ended"


def test_every_role_goes_on_without_its_reader_and_drains(
    noetl: Noetl, nats_url: str, stream_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_events(monkeypatch, nats_url, stream_prefix)
    monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", "false")
    (tmp_path / "hello.yaml").write_text(hello_loop(3))
    with processes_in(tmp_path) as processes:
        commands = ("server", "worker", "projector", "relay", "materializer", "scheduler")
        begun = {one: processes.begin(one, *(["--port", "0"] if one == "server" else [])) for one in commands}
        said = {one: line(process) for one, process in begun.items()}
        for process in begun.values():
            leave(process)
        url = said["server"].removeprefix("listening on ")
        assert said["scheduler"] == "running what is due"

        assert noetl("catalog", "register", "hello.yaml")[0] == 0
        started = call(f"{url}/api/execute", {"path": "demo/hello"})["execution_id"]
        assert call(f"{url}/api/executions/{started}?wait={SECONDS}")["status"] == "COMPLETED"
        shown = json.loads(noetl("executions", "show", started, "--json")[1])
        assert [(step["step"], step["done"]) for step in shown["steps"]] == [("each", 3)], "the projector projects"
        holds_a_shard(noetl, "relay", begun["relay"])
        holds_a_shard(noetl, "materializer", begun["materializer"])
        ends_well(processes, *begun.values())


def test_dev_goes_on_without_its_reader_and_drains(noetl: Noetl, tmp_path: Path) -> None:
    (tmp_path / "playbooks").mkdir()
    with processes_in(tmp_path) as processes:
        dev = processes.begin("dev", "--port", "0", "playbooks")
        url = line(dev).removeprefix("listening on ")
        leave(dev)
        (tmp_path / "playbooks" / "hello.yaml").write_text(hello_loop(3))
        while noetl("catalog", "get", "demo/hello")[0] != 0:
            assert dev.poll() is None, processes.log_of(dev).read_text()
        started = call(f"{url}/api/execute", {"path": "demo/hello"})["execution_id"]
        assert call(f"{url}/api/executions/{started}?wait={SECONDS}")["status"] == "COMPLETED"
        ends_well(processes, dev)


@pytest.mark.parametrize("redirected", ["2>&1", ">&-"], ids=["nobody reads its log either", "it never had any output"])
def test_a_projector_without_any_output_works_and_drains(redirected: str, noetl: Noetl, tmp_path: Path) -> None:
    command = f'exec "$0" -m noetl projector {redirected}'
    with (tmp_path / "projector.log").open("w") as log:
        process = subprocess.Popen(
            ["sh", "-c", command, sys.executable], env=os.environ | {"NOETL_SHARD_ID": "unread"},
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    leave(process)
    try:
        while not all(shard["holder"] for shard in json.loads(noetl("projections", "status", "--json")[1])["shards"]):
            assert process.poll() is None, (tmp_path / "projector.log").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0, (tmp_path / "projector.log").read_text()
    finally:
        process.kill()
        process.wait()
