"""The driver process: `python -m noetl.spark.drivers.main FD`. Reads messages on a socket, runs them on Spark, answers.

Knows no database. When the socket ends, because the worker ended or died, this process and its JVM end at once; when the
JVM is lost, this process ends with it, and the worker starts another.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from noetl.spark.drivers import logs
from noetl.spark.drivers.ongoing_work import ONGOING
from noetl.spark.drivers.programs import PROGRAMS
from noetl.spark.drivers.protocol import (
    PREFIX,
    Answer,
    AskToStop,
    Broken,
    Done,
    FromDriver,
    Interrupt,
    InterruptLeft,
    MakeUnique,
    Open,
    Ready,
    Run,
    RunFrames,
    RunProgram,
    RunQuery,
    RunSelect,
    ToDriver,
    UseCode,
    encode,
    to_driver,
)
from noetl.spark.drivers.requests import Errands
from noetl.spark.drivers.runs import Runs
from noetl.spark.lake.storage import Lake
from noetl.spark.session.jvm import die_with_parent
from noetl.spark.session.modes import Mode, open_mode

_END_SECONDS: Final = 10.0
"""How long the end of this process is waited for at most once its JVM is lost."""
_AGAIN_SECONDS: Final = 0.25
"""How often an interrupt is repeated until its work has ended, since a job may be just about to start."""


class Channel:
    """The socket to the worker: messages in by a thread of their own, messages out from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._writing = threading.Lock()
        self.messages: queue.Queue[ToDriver | None] = queue.Queue()
        self.on_end: Any = lambda: None

    def send(self, message: FromDriver) -> None:
        """Send one message whole; a worker that is gone is noticed by the reader."""
        data = encode(message)
        with self._writing:
            self._socket.sendall(data)

    def read(self) -> None:
        """Queue messages until the socket ends; then end this process, whatever it does."""
        try:
            while head := self._exactly(PREFIX.size):
                body = self._exactly(PREFIX.unpack(head)[0])
                self.messages.put(to_driver(body))
        except OSError:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            self.on_end()
            os._exit(0)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                return b""
            parts += part
        return bytes(parts)


def main(descriptor: int) -> None:
    """Serve one worker until it says stop or is gone."""
    if sys.platform == "linux":
        die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.take_over_output()
    channel = Channel(socket.socket(fileno=descriptor))
    threading.Thread(target=channel.read, name="control", daemon=True).start()
    first = channel.messages.get()
    assert isinstance(first, Open)
    began = time.monotonic()
    try:
        mode = open_mode(first.options, Path(first.scratch))
        channel.on_end = mode.kill
    except BaseException as error:
        channel.send(Broken(str(error)))
        raise
    channel.send(
        Ready(
            application_id=mode.application_id,
            master=first.options.master,
            spark_version=mode.spark_version,
            java_version=mode.java_version,
            seconds=time.monotonic() - began,
        )
    )
    _serve(channel, mode, first)
    mode.close()


def _serve(channel: Channel, mode: Mode, opened: Open) -> None:
    threading.Thread(target=_repeat_interrupts, args=(mode,), name="interrupts", daemon=True).start()
    threading.Thread(target=_end_when_lost, args=(mode,), name="lost", daemon=True).start()
    spark_log = logs.SparkLog(Path(opened.scratch, "spark.log"))

    def answer(message: FromDriver) -> None:
        if isinstance(message, Done) and message.result.status == "error" and not mode.answers():
            # Told now, it would count as an error of the work, and the next one would come to a Spark that is gone.
            threading.Event().wait(_END_SECONDS)
        channel.send(message)

    runs = Runs(mode, opened.options, spark_log, answer)
    own = opened.options
    lake = Lake(root=own.lake_root, options=own.lake_options, native=own.lake_native)
    errands = Errands(mode, lake, spark_log, answer)
    while True:
        message = channel.messages.get()
        if isinstance(message, UseCode):
            sys.path.insert(0, message.directory)
            mode.use_code(Path(message.directory), Path(message.zipped))
        elif isinstance(message, Run):
            runs.start(message)
        elif isinstance(message, MakeUnique):
            runs.start_unique(message)
        elif isinstance(message, RunFrames | RunQuery | RunSelect | RunProgram):
            errands.start(message)
        elif isinstance(message, Answer):
            PROGRAMS.take(message)
        elif isinstance(message, InterruptLeft):
            mode.interrupt_left(message.application_id, message.job_tag)
        elif isinstance(message, AskToStop):
            ONGOING.ask_to_stop(message.job_tag)
        elif isinstance(message, Interrupt):
            ONGOING.interrupt(message.job_tag)
        else:
            return


def _end_when_lost(mode: Mode) -> None:
    """End this process with its Spark: kept alive it would fail every work it is given, and its worker would not know why."""
    mode.wait_until_lost()
    os._exit(1)


def _repeat_interrupts(mode: Mode) -> None:
    while True:
        for tag in ONGOING.interrupted():
            mode.interrupt(tag)
        ONGOING.raise_in_threads()
        ONGOING.wait_for_interrupt(_AGAIN_SECONDS)


if __name__ == "__main__":
    import_module("noetl.spark.drivers.main").main(int(sys.argv[1]))
