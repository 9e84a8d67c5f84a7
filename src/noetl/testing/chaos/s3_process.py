"""An S3 server that can be away and come back with its data: SeaweedFS on the same ports and directory each time."""

from __future__ import annotations

import subprocess
from pathlib import Path

from noetl.testing.servers.s3 import command, free_ports, wait_for_bucket


class S3Process:
    """One server, killed and started again at will."""

    def __init__(self, directory: Path, bucket: str = "payloads") -> None:
        self.bucket = bucket
        self._directory = directory
        self._ports = free_ports(8)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Start it, unless it runs, and return once it takes objects."""
        if self._process is not None and self._process.poll() is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / "weed.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command(self._directory, self._ports), stdout=output, stderr=subprocess.STDOUT
            )
        wait_for_bucket(self._process, self._ports[0], self.bucket, log)

    def kill(self) -> None:
        """Let it be gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
