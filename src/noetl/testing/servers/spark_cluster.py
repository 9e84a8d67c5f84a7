"""Real Spark servers for tests, on the loopback: a standalone cluster with its workers, and a Spark Connect server."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noetl.errors import Unavailable
from noetl.spark.session.class_archive import archive_of
from noetl.spark.session.java import find_java
from noetl.spark.session.jvm import MODULE_OPTIONS, class_path, die_with_parent, environment
from noetl.spark.session.options import SparkOptions

_ADDRESS = "127.0.0.1"
_START_SECONDS = 120.0


@contextmanager
def running_cluster(directory: Path, options: SparkOptions, workers: int = 2) -> Iterator[str]:
    """Run a master and some workers with one core each until the block ends; gives the master's address."""
    with _java(
        directory, options, "org.apache.spark.deploy.master.Master", "--host", _ADDRESS, "--port", "0"
    ) as master:
        address = master.said(r"Starting Spark master at (spark://\S+)")
        started = []
        try:
            for number in range(workers):
                place = directory / f"worker-{number}"
                place.mkdir()
                given = ("--host", _ADDRESS, "--cores", "1", "--memory", "1g", "--work-dir", str(place), address)
                started.append(_java(place, options, "org.apache.spark.deploy.worker.Worker", *given))
            for one in started:
                one.said(r"Successfully registered with master")
            yield address
        finally:
            for one in started:
                one.stop()


@contextmanager
def running_connect(directory: Path, options: SparkOptions) -> Iterator[str]:
    """Run a Spark Connect server on two local cores until the block ends; gives its address."""
    with socket.socket() as free:
        free.bind((_ADDRESS, 0))
        port = free.getsockname()[1]
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": _ADDRESS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    program = ("org.apache.spark.deploy.SparkSubmit", *given, "--class", server, "spark-internal")
    with _java(directory, options, *program) as running:
        running.said(r"Spark Connect server started")
        yield f"sc://{_ADDRESS}:{port}"


class _Running:
    """A Java server and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def said(self, pattern: str) -> str:
        """Wait until the log has a line of this pattern and return its group, or the whole of it."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, self._log.read_text(errors="replace"))
            if found is not None:
                return found[found.lastindex or 0]
            try:
                # The exit of the process is what is waited for, so a server that dies is reported at once.
                self._process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        raise Unavailable(f"a Spark server did not start: {self._log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End it at once; nothing of it is needed again."""
        self._process.kill()
        self._process.wait()


def _java(directory: Path, options: SparkOptions, *program: str) -> _Running:
    java = find_java(Path(options.cache))
    archive = archive_of(java, Path(options.cache))
    log = directory / "server.log"
    quick = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    command = [str(java.program), "-cp", os.pathsep.join(class_path()), "-Xmx1g", *quick, *MODULE_OPTIONS, *program]
    variables = environment(options, java) | {"SPARK_LOCAL_IP": _ADDRESS, "SPARK_SCALA_VERSION": "2.13"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
    return _Running(process, log)
