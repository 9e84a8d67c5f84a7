"""The DuckDB process: `python -m noetl.services.query.duck.worker FD`. Reads messages on a socket, runs queries one by one, answers.

Knows no database and no secret but those of the lake. When the socket ends, it ends at once.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from noetl.services.query.duck.instance import AnswerSize, Instances, answer, spare
from noetl.services.query.duck.proof import NotProven
from noetl.services.query.duck.protocol import (
    PREFIX,
    Ask,
    Failed,
    FromDuck,
    Interrupt,
    Open,
    Ready,
    Rows,
    ToDuck,
    encode,
    to_duck,
)
from noetl.spark.lake.storage import Lake
from noetl.spark.session.jvm import die_with_parent

_UNITS: Final = {"MB": 10**6, "GB": 10**9, "MIB": 1 << 20, "GIB": 1 << 30}
_BESIDE_BYTES: Final = 2 << 30
"""Address space for what DuckDB does not count: libraries, threads, answers."""


class Worker:
    """Serves one server until it is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._messages: queue.Queue[ToDuck] = queue.Queue()
        self._lock = threading.Lock()
        self._running: duckdb.DuckDBPyConnection | None = None

    def serve(self) -> None:
        """Answer queries, one after another."""
        threading.Thread(target=self._read, name="control", daemon=True).start()
        opened = self._messages.get()
        assert isinstance(opened, Open)
        lake = Lake(opened.lake_root, opened.lake_options)
        scratch = Path(opened.scratch)
        if sys.platform == "linux":
            _bound(opened.memory)
        instances = Instances(lake, lambda: spare(opened.memory, opened.threads, scratch, opened.spill))
        instances.prepare()
        self._socket.sendall(encode(Ready()))
        while True:
            while not isinstance(asked := self._messages.get(), Ask):
                continue
            said = self._answered(instances, asked)
            self._socket.sendall(encode(said))
            if not isinstance(said, Rows):
                instances.forget(asked.relations)
            instances.prepare()

    def _answered(self, instances: Instances, asked: Ask) -> FromDuck:
        try:
            database = instances.of(asked.relations)
            with self._lock:
                self._running = database
            try:
                return Rows(answer(database, asked.sql, asked.relations, asked.most_bytes))
            finally:
                with self._lock:
                    self._running = None
        except Exception as problem:
            return _failed(problem)

    def _read(self) -> None:
        """Queue messages until the socket ends; then end this process, whatever it does."""
        try:
            while head := self._exactly(PREFIX.size):
                message = to_duck(self._exactly(PREFIX.unpack(head)[0]))
                if isinstance(message, Interrupt):
                    with self._lock:
                        if self._running is not None:
                            self._running.interrupt()
                else:
                    self._messages.put(message)
        finally:
            os._exit(0)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                return b""
            parts += part
        return bytes(parts)


def _failed(problem: Exception) -> Failed:
    match problem:
        case AnswerSize():
            return Failed("size", "")
        case NotProven():
            return Failed("proof", str(problem))
        case duckdb.InterruptException():
            return Failed("interrupted", "")
        case duckdb.OutOfMemoryException() | MemoryError() | pa.ArrowMemoryError():
            return Failed("memory", "")
        case duckdb.IOException() | duckdb.PermissionException() | OSError():
            # What it says names files of the lake, which are nobody's business.
            return Failed("files", "")
        case _:
            # Below the first lines stands an excerpt of the SQL.
            return Failed("query", str(problem).partition("\n\nLINE ")[0].strip()[:2000])


def _bound(memory: str) -> None:
    """Let the kernel refuse memory far beyond what DuckDB is told to stay within."""
    number = memory.upper().rstrip("GMIB")
    allowed = 2 * int(float(number) * _UNITS[memory.upper()[len(number) :].strip()]) + _BESIDE_BYTES
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + allowed, used + allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(descriptor: int) -> None:
    """Serve the server on the other end of a socket."""
    if sys.platform == "linux":
        die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(socket.socket(fileno=descriptor)).serve()


if __name__ == "__main__":
    import_module("noetl.services.query.duck.worker").main(int(sys.argv[1]))
