"""A server that speaks Kafka's protocol for tests: SeaweedFS's broker behind its gateway, on loopback, stopped at the end.

The gateway tells clients to come to port 9093 wherever it listens, so there is one at a time on a machine.
"""

from __future__ import annotations

import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from noetl.errors import Unavailable
from noetl.testing.servers.s3 import free_ports, program

ADDRESS = "127.0.0.1:9093"
_HOST, _PORT = "127.0.0.1", 9093
_START_SECONDS = 120.0


@contextmanager
def running_kafka(directory: Path) -> Iterator[str]:
    """Run the servers with their data in `directory` until the block ends, and give the address of the gateway."""
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, broker = free_ports(7)
    command = [
        program(), "server", f"-dir={directory}", f"-ip={_HOST}", f"-ip.bind={_HOST}", "-master.telemetry=false",
        f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.volumeSizeLimitMB=64", "-volume.max=0",
        f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-filer", f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}", "-mq.broker", f"-mq.broker.port={broker}",
    ]  # fmt: skip
    log = directory / "kafka.log"
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        registry = stack.enter_context(_registry())
        stack.enter_context(_process(command, output.fileno()))
        gateway = [
            program(), "mq.kafka.gateway", f"-ip={_HOST}", f"-port={_PORT}", f"-master={_HOST}:{master}.{master_grpc}",
            "-default-partitions=2", f"-schema-registry-url={registry}",
        ]  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            # The gateway gives up while the broker has not found its place yet.
            with ExitStack() as attempt:
                process = attempt.enter_context(_process(gateway, output.fileno()))
                if _listens(process, deadline):
                    stack.push(attempt.pop_all())
                    yield ADDRESS
                    return
        raise Unavailable(f"the Kafka gateway did not start: {log.read_text(errors='replace')[-2000:]}")


def _listens(process: subprocess.Popen[bytes], deadline: float) -> bool:
    while time.monotonic() < deadline:
        try:
            socket.create_connection((_HOST, _PORT), timeout=5).close()
        except OSError:
            pass
        else:
            return True
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        return False
    return False


@contextmanager
def _process(command: list[str], output: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=20)


@contextmanager
def _registry() -> Iterator[str]:
    """Run what the gateway takes for a registry of schemas; it has none."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((_HOST, 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{_HOST}:{server.server_port}"
        server.shutdown()
