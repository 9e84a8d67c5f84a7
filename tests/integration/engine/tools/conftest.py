"""Fixtures of tests/unit/engine/tools for the tests that need a server, and the servers of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.engine.tools.conftest import call_of, credentials, payloads, resources  # noqa: F401 - fixtures


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a NATS server with JetStream, on loopback and in a directory of its own."""
    directory = tmp_path_factory.mktemp("nats")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    program = Path(sys.executable).with_name("nats-server")
    command = [
        str(program),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "-js",
        "-sd",
        str(directory),
        "--user",
        "u",
        "--pass",
        "p",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_for(process, port, directory / "log")
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=20)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                if connection.recv(4) == b"INFO":
                    return
        except OSError:
            pass
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"nats-server did not start: {log.read_text(errors='replace')[-2000:]}")
