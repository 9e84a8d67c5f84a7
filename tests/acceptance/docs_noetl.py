"""A `noetl` for shells that run many: each command is forked from a process that has imported everything already.

`serve` is that process. The program that stands on the shell's path hands it its arguments, directory, environment and
open files, passes signals on and ends as the command ends; a program that is killed takes its command with it. Only the
start is spared: a command is a process of its own, and what it starts itself starts as ever.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_PROGRAM = """#!{python} -IS
import array, json, os, signal, socket, sys
there = socket.socket(socket.AF_UNIX)
there.connect({address!r})
told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
files = array.array("i", [0, 1, 2])
there.sendmsg([len(told).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
there.sendall(told)
signal.signal(signal.SIGTERM, lambda number, frame: there.sendall(bytes([number])))
os._exit((there.recv(1) or b"\\xff")[0])
"""
_BEFOREHAND = ("noetl.cli", "noetl.runtime", "noetl.api")
"""Packages whose modules the commands import, with what those import."""
_MORE = ("duckdb", "pyarrow.dataset", "pyarrow.parquet", "uvicorn", "rich.table")


@contextmanager
def quick_noetl(directory: Path) -> Iterator[Path]:
    """Give a directory with a `noetl` in it that starts at once, for the time of the block."""
    address = directory / "noetl.socket"
    program = directory / "noetl"
    program.write_text(_PROGRAM.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen(64)
        serving = subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
            start_new_session=True,
        )
    with serving:
        try:
            yield directory
        finally:
            serving.kill()


def serve(descriptor: int) -> None:
    """Fork a process for whoever calls, until the other end of the standard input is gone."""
    for package in _BEFOREHAND:
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    for name in _MORE:
        import_module(name)
    # Where the program itself is, as for any script.
    sys.path[0] = str(Path(sys.executable).parent)
    # What is there stays: looking for rubbish in it would copy all memory to every command.
    gc.freeze()
    listening = socket.socket(fileno=descriptor)
    # Those who look after the commands are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return
        caller, _ = listening.accept()
        if not os.fork():
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os._exit(_attend(caller))
        caller.close()


def _attend(caller: socket.socket) -> int:
    """Start what a caller asks for, pass its signals on, and tell it the end; a caller that is gone ends it."""
    head, files, _, _ = socket.recv_fds(caller, 4, 3)
    size, told = int.from_bytes(head, "big"), b""
    while len(told) < size:
        part = caller.recv(size - len(told))
        if not part:  # it is gone already
            return 1
        told += part
    command = os.fork()
    if not command:
        caller.close()
        _become(files, *json.loads(told))
    for file in files:
        os.close(file)
    ended = os.pidfd_open(command)
    while True:
        ready, _, _ = select.select([ended, caller], [], [])
        if ended in ready:
            break
        number = caller.recv(1)
        os.kill(command, number[0] if number else signal.SIGKILL)
        if not number:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with suppress(BrokenPipeError):
        # As a shell tells of a signal.
        caller.send(bytes([code if code >= 0 else 128 - code]))
    return 0


def _become(files: list[int], arguments: list[str], directory: str, environment: dict[str, str]) -> NoReturn:
    """Be the command: its files, its directory, its environment."""
    from noetl.cli.main import main
    from noetl.spark.session.jvm import die_with_parent

    die_with_parent()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["noetl", *arguments]
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code
    assert isinstance(code, int)
    # As the interpreter ends, but without taking every module apart, which takes longer than most commands.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
